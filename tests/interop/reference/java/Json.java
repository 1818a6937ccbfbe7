package reference;

import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A small JSON reader and writer, so that the driver needs no JSON package. */
class Json {
    final String s;
    int i;

    Json(String s) {
        this.s = s;
    }

    static Object parse(String text) {
        Json j = new Json(text);
        Object v = j.value();
        j.space();
        if (j.i != text.length()) throw new IllegalArgumentException("JSON: text after the end at " + j.i);
        return v;
    }

    void space() {
        while (i < s.length() && Character.isWhitespace(s.charAt(i))) i++;
    }

    Object value() {
        space();
        char c = s.charAt(i);
        if (c == '{') {
            Map<String, Object> m = new LinkedHashMap<>();
            i++;
            space();
            if (s.charAt(i) == '}') {
                i++;
                return m;
            }
            while (true) {
                space();
                String k = text();
                space();
                expect(':');
                m.put(k, value());
                space();
                if (s.charAt(i) == ',') {
                    i++;
                    continue;
                }
                expect('}');
                return m;
            }
        }
        if (c == '[') {
            List<Object> l = new ArrayList<>();
            i++;
            space();
            if (s.charAt(i) == ']') {
                i++;
                return l;
            }
            while (true) {
                l.add(value());
                space();
                if (s.charAt(i) == ',') {
                    i++;
                    continue;
                }
                expect(']');
                return l;
            }
        }
        if (c == '"') return text();
        if (s.startsWith("true", i)) {
            i += 4;
            return true;
        }
        if (s.startsWith("false", i)) {
            i += 5;
            return false;
        }
        if (s.startsWith("null", i)) {
            i += 4;
            return null;
        }
        int from = i;
        while (i < s.length() && "+-0123456789.eE".indexOf(s.charAt(i)) >= 0) i++;
        String n = s.substring(from, i);
        if (n.isEmpty()) throw new IllegalArgumentException("JSON: unexpected '" + c + "' at " + i);
        if (n.matches("-?\\d+")) return Long.parseLong(n);
        return Double.parseDouble(n);
    }

    void expect(char c) {
        if (s.charAt(i) != c) throw new IllegalArgumentException("JSON: expected '" + c + "' at " + i);
        i++;
    }

    String text() {
        expect('"');
        StringBuilder b = new StringBuilder();
        while (true) {
            char c = s.charAt(i++);
            if (c == '"') return b.toString();
            if (c != '\\') {
                b.append(c);
                continue;
            }
            c = s.charAt(i++);
            int k = "nrtbf".indexOf(c);
            if (c == 'u') {
                b.append((char) Integer.parseInt(s.substring(i, i + 4), 16));
                i += 4;
            } else b.append(k >= 0 ? "\n\r\t\b\f".charAt(k) : c);
        }
    }

    static void write(StringBuilder b, Object o) {
        if (o == null || o instanceof Number || o instanceof Boolean) {
            b.append(o);
        } else if (o instanceof Map) {
            char sep = '{';
            for (Map.Entry<?, ?> e : ((Map<?, ?>) o).entrySet()) {
                b.append(sep);
                write(b, String.valueOf(e.getKey()));
                b.append(":");
                write(b, e.getValue());
                sep = ',';
            }
            b.append(sep == '{' ? "{}" : "}");
        } else if (o instanceof List) {
            char sep = '[';
            for (Object e : (List<?>) o) {
                b.append(sep);
                write(b, e);
                sep = ',';
            }
            b.append(sep == '[' ? "[]" : "]");
        } else {
            String t = String.valueOf(o);
            b.append('"');
            for (int i = 0; i < t.length(); i++) {
                char c = t.charAt(i);
                if (c == '"' || c == '\\') b.append('\\').append(c);
                else if (c < 0x20 || Character.isSurrogate(c) || c == 0x7f) b.append(String.format("\\u%04x", (int) c));
                else b.append(c);
            }
            b.append('"');
        }
    }
}
