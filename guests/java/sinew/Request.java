// SPDX-License-Identifier: Apache-2.0
package sinew;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;

/** A request as the adapter of executables sends it: with a length. */
final class Request {
    private static final int HEAD_BYTES_MAX = 1 << 20;

    /** Names in lower case; of one that comes twice the values are joined by commas. */
    final Map<String, String> headers = new LinkedHashMap<>();
    final byte[] body;

    private Request(String head, InputStream in) throws IOException {
        String[] lines = head.split("\r\n");
        for (int at = 1; at < lines.length; at++) {
            int colon = lines[at].indexOf(':');
            if (colon < 1) continue;
            String name = lines[at].substring(0, colon).toLowerCase(Locale.ROOT);
            headers.merge(name, lines[at].substring(colon + 1).trim(), (one, other) -> one + ", " + other);
        }
        int length = Integer.parseInt(header("content-length", "0"));
        body = in.readNBytes(length);
        if (body.length < length) throw new EOFException();
    }

    /** The next one; null if the connection ends before it begins. It is read byte by byte: from a buffer. */
    static Request read(InputStream in) throws IOException {
        byte[] bytes = new byte[1 << 10];
        int length = 0;
        while (true) {
            int next = in.read();
            if (next < 0) return null;
            if (length == bytes.length) bytes = java.util.Arrays.copyOf(bytes, 2 * length);
            bytes[length++] = (byte) next;
            boolean ends = next == '\n' && length >= 4 && bytes[length - 2] == '\r' && bytes[length - 3] == '\n';
            if (ends) return new Request(new String(bytes, 0, length, StandardCharsets.ISO_8859_1), in);
            if (length > HEAD_BYTES_MAX) throw new IOException("the head of the request is too long");
        }
    }

    String header(String name, String otherwise) {
        return headers.getOrDefault(name, otherwise);
    }

    /** The body as handlers get it: JSON, a text, or bytes. */
    Object event() {
        if (body.length == 0) return new LinkedHashMap<String, Object>();
        String type = header("content-type", "");
        String kind = type.split(";")[0].trim().toLowerCase(Locale.ROOT);
        boolean isJson = kind.isEmpty() || kind.equals("application/json") || kind.endsWith("+json");
        boolean isForm = kind.equals("application/x-www-form-urlencoded");
        // What `curl -d` sends says that it is a form, whatever it is.
        if (isJson || isForm && (body[0] == '{' || body[0] == '[')) {
            try {
                return Json.read(text());
            } catch (IllegalArgumentException error) {
                // It is a text, then.
            }
        }
        boolean isText = isJson || isForm || kind.startsWith("text/") || kind.endsWith("xml");
        return isText ? text() : body;
    }

    String text() {
        return new String(body, StandardCharsets.UTF_8);
    }
}
