// SPDX-License-Identifier: Apache-2.0
package sinew;

import java.io.BufferedOutputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.Socket;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Locale;
import java.util.Map;

/** What a function may ask of the node that it runs on. */
public final class Sinew {
    /** The request that a thread handles, or that it was begun for. */
    private static final InheritableThreadLocal<Serving> SERVING = new InheritableThreadLocal<>();

    /** Where functions are called for a request, until that is over: a pool's threads outlive the one that began them. */
    private static final class Serving {
        final String address;
        volatile boolean isOver;

        Serving(String address) {
            this.address = address;
        }
    }

    private Sinew() {}

    /** What is called in this thread from now on is for this request; null for none any more. */
    static void callsFor(Request request) {
        Serving before = SERVING.get();
        if (before != null) before.isOver = true;
        SERVING.set(request == null ? null : new Serving(request.header("sinew-url", null)));
    }

    /** Of the request that this is done for; if it is over, or none is known, that of the only one that is handled. */
    private static URI address() {
        Serving serving = SERVING.get();
        boolean isKnown = serving != null && !serving.isOver && serving.address != null;
        return URI.create(isKnown ? serving.address : System.getenv("SINEW_URL"));
    }

    /** Calls the function of a name, and gives what it returns: JSON as maps and lists, a text, or bytes. */
    public static Object call(String name, Object payload) {
        boolean isText = payload instanceof CharSequence;
        byte[] body = payload == null ? new byte[0]
                : payload instanceof byte[] ? (byte[]) payload
                : (isText ? payload.toString() : Json.write(payload)).getBytes(StandardCharsets.UTF_8);
        String type = payload == null ? ""
                : payload instanceof byte[] ? "application/octet-stream"
                : isText ? "text/plain; charset=utf-8" : "application/json";
        try {
            return asked(name, type, body);
        } catch (IOException error) {
            throw new CallError(name, 503, "the call did not come to an end: " + error.getMessage());
        }
    }

    private static Object asked(String name, String type, byte[] body) throws IOException {
        if (name.isEmpty() || !name.matches("[a-z0-9:-]+")) {
            throw new IllegalArgumentException("a function's name is NAME, NAME:ALIAS or NAME:VERSION");
        }
        URI address = address();
        try (Socket socket = new Socket(address.getHost(), address.getPort())) {
            String kind = type.isEmpty() ? "" : "content-type: " + type + "\r\n";
            String head = "POST " + address.getPath() + "/function/" + name + " HTTP/1.1\r\nhost: localhost\r\n" + kind
                    + "content-length: " + body.length + "\r\n\r\n";
            OutputStream out = new BufferedOutputStream(socket.getOutputStream());
            out.write(head.getBytes(StandardCharsets.US_ASCII));
            out.write(body);
            out.flush();
            ByteArrayOutputStream all = new ByteArrayOutputStream();
            socket.getInputStream().transferTo(all);
            return answer(name, all.toByteArray());
        }
    }

    private static Object answer(String name, byte[] all) throws IOException {
        String text = new String(all, StandardCharsets.ISO_8859_1);
        int end = text.indexOf("\r\n\r\n");
        if (end < 0) throw new IOException("there was no answer");
        String head = text.substring(0, end);
        byte[] body = java.util.Arrays.copyOfRange(all, end + 4, all.length);
        int status = Integer.parseInt(head.split(" ")[1]);
        String type = "";
        for (String line : head.split("\r\n")) {
            if (line.toLowerCase(Locale.ROOT).startsWith("content-type:")) type = line.substring(13).trim();
        }
        String told = new String(body, StandardCharsets.UTF_8);
        if (status >= 400) throw new CallError(name, status, reason(type, told));
        if (type.startsWith("application/json")) return Json.read(told);
        return type.startsWith("text/") ? told : body.length == 0 ? null : body;
    }

    private static String reason(String type, String told) {
        if (!type.startsWith("application/problem+json")) return told;
        Object problem = Json.read(told);
        return problem instanceof Map ? String.valueOf(((Map<?, ?>) problem).get("detail")) : told;
    }

    /** What comes of a call of a function that gave no answer, or one with a status of 400 and more. */
    public static final class CallError extends RuntimeException {
        private static final long serialVersionUID = 1;
        /** The function that was called. */
        public final String function;
        /** Its status. */
        public final int status;

        CallError(String function, int status, String reason) {
            super("calling " + function + " failed with " + status + ": " + reason);
            this.function = function;
            this.status = status;
        }
    }
}
