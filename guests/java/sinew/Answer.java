// SPDX-License-Identifier: Apache-2.0
package sinew;

import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

/** What a handler's return value is over HTTP. */
final class Answer {
    private static final String JSON = "application/json";
    /** The failure of a call, instead of an answer: its value names the exception. */
    private static final String RAISED = "sinew-raised";

    private static final Set<String> OF_CONNECTION =
            Set.of("connection", "content-length", "keep-alive", "transfer-encoding", "upgrade");

    private final int status;
    private final Map<String, String> headers;
    private final byte[] body;

    private Answer(int status, Map<String, String> headers, byte[] body) {
        this.status = status;
        this.headers = headers;
        this.body = body;
    }

    private static Answer of(int status, String type, byte[] body) {
        Map<String, String> headers = new LinkedHashMap<>();
        if (type != null) headers.put("content-type", type);
        return new Answer(status, headers, body);
    }

    /** Of what was returned. */
    static Answer of(Object value) {
        if (value == null) return of(204, null, new byte[0]);
        if (value instanceof byte[]) return of(200, "application/octet-stream", (byte[]) value);
        if (value instanceof CharSequence) return of(200, "text/plain; charset=utf-8", utf8(value.toString()));
        Object plain = Json.plain(value);
        if (plain instanceof Map && ((Map<?, ?>) plain).containsKey("statusCode")) return proxy((Map<?, ?>) plain);
        return of(200, JSON, utf8(Json.write(plain)));
    }

    /** Of what was written by a handler of streams. */
    static Answer ofBytes(byte[] bytes) {
        boolean isJson = bytes.length > 0 && (bytes[0] == '{' || bytes[0] == '[');
        return of(200, isJson ? JSON : "application/octet-stream", bytes);
    }

    /** The form of Lambda's proxy integration. */
    private static Answer proxy(Map<?, ?> value) {
        if (!(value.get("statusCode") instanceof Number)) {
            throw new IllegalArgumentException("the result's statusCode is no number");
        }
        Object given = value.get("body");
        boolean isEncoded = Boolean.TRUE.equals(value.get("isBase64Encoded"));
        byte[] body = given == null ? new byte[0]
                : !(given instanceof String) ? utf8(Json.write(given))
                : isEncoded ? Base64.getDecoder().decode((String) given) : utf8((String) given);
        Map<String, String> headers = new LinkedHashMap<>();
        if (value.get("headers") instanceof Map) {
            ((Map<?, ?>) value.get("headers")).forEach((name, one) ->
                    headers.put(String.valueOf(name).toLowerCase(Locale.ROOT), String.valueOf(one)));
        }
        if (given != null) headers.putIfAbsent("content-type", isEncoded ? "application/octet-stream" : JSON);
        return new Answer(((Number) value.get("statusCode")).intValue(), headers, body);
    }

    /** Of an exception. */
    static Answer raised(Throwable error, String trace) {
        Answer answer = of(500, "text/plain; charset=utf-8", utf8(trace));
        answer.headers.put(RAISED, error.getClass().getName());
        return answer;
    }

    /** This one, if it can be sent: status and headers are the handler's. */
    Answer checked() {
        if (status < 200 || status > 999) {
            throw new IllegalArgumentException("the result's statusCode is " + status + ", and no status of an answer");
        }
        headers.forEach((name, value) -> {
            String all = name + value;
            boolean isTorn = all.indexOf('\r') >= 0 || all.indexOf('\n') >= 0 || all.indexOf('\0') >= 0;
            if (name.isEmpty() || isTorn || name.indexOf(':') >= 0) {
                throw new IllegalArgumentException("the header " + name + " has a line break or a colon");
            }
        });
        return this;
    }

    void write(OutputStream out) throws IOException {
        StringBuilder head = new StringBuilder("HTTP/1.1 ").append(status).append(" -\r\n");
        headers.forEach((name, value) -> {
            // The connection is not the handler's.
            if (!OF_CONNECTION.contains(name)) head.append(name).append(": ").append(value).append("\r\n");
        });
        // What says that there is no body has none, whatever the handler gave.
        boolean isWithout = status == 204 || status == 304;
        if (!isWithout) head.append("content-length: ").append(body.length).append("\r\n");
        out.write(utf8(head.append("\r\n").toString()));
        if (!isWithout) out.write(body);
    }

    private static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
