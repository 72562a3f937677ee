// SPDX-License-Identifier: Apache-2.0
package sinew;

import java.math.BigDecimal;
import java.math.BigInteger;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** JSON as maps, lists, strings, numbers, booleans and null; classes of the user's in {@link Beans}. */
final class Json {
    private static final int DEPTH_MAX = 200;

    private final String text;
    private int at;
    private int depth;

    private Json(String text) {
        this.text = text;
    }

    /** Reads a text; numbers are Integer, Long, BigInteger or Double. */
    static Object read(String text) {
        Json reader = new Json(text);
        Object value = reader.value();
        reader.space();
        if (reader.at < text.length()) throw reader.wrong();
        return value;
    }

    /** What a value is without classes of the user's. */
    static Object plain(Object value) {
        return Beans.plain(value, 0);
    }

    /** A value as one of this type. */
    static Object as(Object value, java.lang.reflect.Type type) {
        return Beans.as(value, type);
    }

    static String write(Object value) {
        StringBuilder out = new StringBuilder();
        write(Beans.plain(value, 0), out);
        return out.toString();
    }

    private IllegalArgumentException wrong() {
        return new IllegalArgumentException("no JSON at character " + at);
    }

    private void space() {
        while (at < text.length() && " \t\r\n".indexOf(text.charAt(at)) >= 0) at++;
    }

    private boolean takes(char wanted) {
        space();
        boolean is = at < text.length() && text.charAt(at) == wanted;
        if (is) at++;
        return is;
    }

    private Object value() {
        space();
        if (at == text.length() || ++depth > DEPTH_MAX) throw wrong();
        Object value;
        switch (text.charAt(at)) {
            case '{': value = object(); break;
            case '[': value = array(); break;
            case '"': value = string(); break;
            case 't': value = word("true", true); break;
            case 'f': value = word("false", false); break;
            case 'n': value = word("null", null); break;
            default: value = number();
        }
        depth--;
        return value;
    }

    private Object word(String word, Object value) {
        if (!text.startsWith(word, at)) throw wrong();
        at += word.length();
        return value;
    }

    private Map<String, Object> object() {
        Map<String, Object> map = new LinkedHashMap<>();
        at++;
        if (takes('}')) return map;
        do {
            space();
            if (at == text.length() || text.charAt(at) != '"') throw wrong();
            String name = string();
            if (!takes(':')) throw wrong();
            map.put(name, value());
        } while (takes(','));
        if (!takes('}')) throw wrong();
        return map;
    }

    private List<Object> array() {
        List<Object> list = new ArrayList<>();
        at++;
        if (takes(']')) return list;
        do list.add(value()); while (takes(','));
        if (!takes(']')) throw wrong();
        return list;
    }

    private String string() {
        StringBuilder out = new StringBuilder();
        at++;
        while (at < text.length()) {
            char next = text.charAt(at++);
            if (next == '"') return out.toString();
            if (next < ' ') break;
            if (next != '\\') {
                out.append(next);
                continue;
            }
            if (at == text.length()) break;
            char escaped = text.charAt(at++);
            int known = "\"\\/bfnrt".indexOf(escaped);
            if (known >= 0) {
                out.append("\"\\/\b\f\n\r\t".charAt(known));
            } else if (escaped == 'u' && at + 4 <= text.length() && text.substring(at, at + 4).matches("[0-9a-fA-F]{4}")) {
                out.append((char) Integer.parseInt(text.substring(at, at + 4), 16));
                at += 4;
            } else {
                break;
            }
        }
        throw wrong();
    }

    private Number number() {
        int start = at;
        while (at < text.length() && "+-.0123456789eE".indexOf(text.charAt(at)) >= 0) at++;
        String digits = text.substring(start, at);
        // No number is so long that to read it takes long.
        if (digits.length() > 1000 || !isNumber(digits)) throw wrong();
        boolean isWhole = digits.indexOf('.') < 0 && digits.indexOf('e') < 0 && digits.indexOf('E') < 0;
        if (!isWhole) return Double.valueOf(digits);
        BigInteger whole = new BigInteger(digits);
        if (whole.bitLength() < 32) return whole.intValue();
        return whole.bitLength() < 64 ? (Number) whole.longValue() : whole;
    }

    /** Whether these digits, signs, points and exponents are in the order of a number's. */
    private static boolean isNumber(String digits) {
        int at = digits.startsWith("-") ? 1 : 0;
        int end = run(digits, at);
        if (end == at || digits.charAt(at) == '0' && end > at + 1) return false;
        if (end < digits.length() && digits.charAt(end) == '.') {
            at = end + 1;
            end = run(digits, at);
            if (end == at) return false;
        }
        if (end < digits.length() && (digits.charAt(end) == 'e' || digits.charAt(end) == 'E')) {
            at = end + 1;
            if (at < digits.length() && (digits.charAt(at) == '+' || digits.charAt(at) == '-')) at++;
            end = run(digits, at);
            if (end == at) return false;
        }
        return end == digits.length();
    }

    /** Where the digits from here on end. */
    private static int run(String digits, int from) {
        int at = from;
        while (at < digits.length() && digits.charAt(at) >= '0' && digits.charAt(at) <= '9') at++;
        return at;
    }

    private static void write(Object value, StringBuilder out) {
        if (value instanceof Map) {
            String between = "{";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(between);
                quote(String.valueOf(entry.getKey()), out);
                out.append(':');
                write(entry.getValue(), out);
                between = ",";
            }
            out.append(between.equals("{") ? "{}" : "}");
        } else if (value instanceof List) {
            String between = "[";
            for (Object one : (List<?>) value) {
                out.append(between);
                write(one, out);
                between = ",";
            }
            out.append(between.equals("[") ? "[]" : "]");
        } else if (value instanceof Number || value instanceof Boolean || value == null) {
            boolean isInfinite = value instanceof Double && !Double.isFinite((Double) value);
            if (isInfinite) throw new IllegalArgumentException("the result has " + value + ", which is no number of JSON");
            out.append(value instanceof BigDecimal ? ((BigDecimal) value).toPlainString() : String.valueOf(value));
        } else {
            quote(value.toString(), out);
        }
    }

    private static void quote(String text, StringBuilder out) {
        out.append('"');
        for (int at = 0; at < text.length(); at++) {
            char next = text.charAt(at);
            int known = "\"\\\b\f\n\r\t".indexOf(next);
            if (known >= 0) out.append('\\').append("\"\\bfnrt".charAt(known));
            else if (next < ' ' || Character.isSurrogate(next)) out.append(String.format("\\u%04x", (int) next));
            else out.append(next);
        }
        out.append('"');
    }
}
