// SPDX-License-Identifier: Apache-2.0
package sinew;

import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.ServerSocketChannel;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;

/**
 * What a Java function runs: a server of HTTP on the socket that SINEW_SOCKET names, with a thread for
 * each connection, of which there are as many as requests at the same time. Who asks is the adapter of
 * executables.
 *
 * <p>Arguments: the handler, and the function's memory in MiB. With `--train` before them it loads
 * what a request needs, and ends: what was loaded is archived, so that it is there at the next start.
 */
public final class Main {
    /** Frames of an exception that are told, of those that are the user's. */
    private static final int FRAMES_MAX = 16;

    private Main() {}

    public static void main(String[] arguments) throws Exception {
        boolean trains = arguments[0].equals("--train");
        List<String> given = Arrays.asList(arguments).subList(trains ? 1 : 0, arguments.length);
        int memoryMb = Integer.parseInt(given.get(1));
        if (trains) {
            train(given.get(0), memoryMb);
            return;
        }
        Handler handler;
        try {
            handler = Handler.of(given.get(0));
        } catch (ReflectiveOperationException | LinkageError | IllegalArgumentException error) {
            System.err.print(traceOf(error));
            System.exit(1);
            return;
        }
        try (ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(UnixDomainSocketAddress.of(Path.of(System.getenv("SINEW_SOCKET"))));
            while (true) {
                SocketChannel connection = server.accept();
                Thread thread = new Thread(() -> converse(connection, handler, memoryMb), "request");
                thread.setDaemon(true);
                try {
                    thread.start();
                } catch (OutOfMemoryError error) {
                    // The function has too many threads of its own: this request fails, and no other one.
                    System.err.println("no thread for a request: " + error.getMessage());
                    connection.close();
                }
            }
        }
    }

    private static void converse(SocketChannel connection, Handler handler, int memoryMb) {
        try (connection) {
            serve(connection, handler, memoryMb);
        } catch (IOException error) {
            // Whoever asked has left; others come.
        }
    }

    /** Answers what comes on a connection, one request after the other. */
    private static void serve(SocketChannel connection, Handler handler, int memoryMb) throws IOException {
        InputStream in = new BufferedInputStream(Channels.newInputStream(connection), 64 << 10);
        OutputStream out = new BufferedOutputStream(Channels.newOutputStream(connection), 16 << 10);
        Request request;
        while ((request = Request.read(in)) != null) {
            Sinew.callsFor(request);
            Answer answer = answered(handler, request, memoryMb);
            Sinew.callsFor(null);
            answer.write(out);
            out.flush();
        }
    }

    private static Answer answered(Handler handler, Request request, int memoryMb) {
        try {
            return handler.call(request, new CallContext(request, memoryMb)).checked();
        } catch (StackOverflowError error) {
            return Answer.raised(error, traceOf(error));
        } catch (VirtualMachineError error) {
            // Nothing is certain any more.
            System.err.print(traceOf(error));
            Runtime.getRuntime().halt(1);
            throw error;
        } catch (Throwable error) {
            return Answer.raised(error, traceOf(error));
        }
    }

    /** The stack of an exception and of its causes, without the frames that are not the user's. */
    static String traceOf(Throwable error) {
        List<Throwable> chain = new ArrayList<>();
        for (Throwable at = error; at != null && !chain.contains(at); at = at.getCause()) chain.add(at);
        for (Throwable at : chain) {
            List<StackTraceElement> own = new ArrayList<>();
            for (StackTraceElement frame : at.getStackTrace()) {
                if (frame.getClassName().startsWith("sinew.")) break;
                if (own.size() < FRAMES_MAX) own.add(frame);
            }
            while (!own.isEmpty() && own.get(own.size() - 1).getClassName().startsWith("java.lang.reflect.")
                    || !own.isEmpty() && own.get(own.size() - 1).getClassName().startsWith("jdk.internal.")) {
                own.remove(own.size() - 1);
            }
            at.setStackTrace(own.toArray(new StackTraceElement[0]));
        }
        StringWriter text = new StringWriter();
        error.printStackTrace(new PrintWriter(text));
        return text.toString();
    }

    /** Has loaded what a request needs; nothing of the user's runs. */
    private static void train(String name, int memoryMb) throws Exception {
        Handler.inspect(name);
        byte[] text = ("POST /?a=b HTTP/1.1\r\nContent-Type: application/json\r\nSinew-Function: f\r\n"
                + "Sinew-Version: 1\r\nSinew-Deadline-Ms: 1\r\nX-Request-Id: i\r\nContent-Length: 35\r\n\r\n"
                + "{\"a\":[1,2.5,true,null,\"\\u0041\"],\"b\":1}").getBytes(StandardCharsets.UTF_8);
        InputStream in = new java.io.ByteArrayInputStream(text);
        Request request = Request.read(in);
        Handler echo = Handler.of("sinew.Echo::handle");
        OutputStream nowhere = new BufferedOutputStream(OutputStream.nullOutputStream());
        answered(echo, request, memoryMb).write(nowhere);
        Answer.raised(new IllegalStateException("a"), traceOf(new IllegalStateException("a"))).write(nowhere);
        Path folder = java.nio.file.Files.createTempDirectory("sinew");
        Path socket = folder.resolve("s");
        try (ServerSocketChannel server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)) {
            server.bind(UnixDomainSocketAddress.of(socket));
            SocketChannel client = SocketChannel.open(UnixDomainSocketAddress.of(socket));
            client.write(java.nio.ByteBuffer.wrap(text));
            client.shutdownOutput();
            SocketChannel connection = server.accept();
            Thread thread = new Thread(() -> converse(connection, echo, memoryMb), "request");
            thread.start();
            thread.join();
            client.close();
        }
        java.nio.file.Files.deleteIfExists(socket);
        java.nio.file.Files.deleteIfExists(folder);
    }
}
