package reference;

import static reference.StoreDriver.*;

import java.io.File;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageAccessor;
import org.apache.rocketmq.common.message.MessageDecoder;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageExtBatch;
import org.apache.rocketmq.store.AppendMessageResult;
import org.apache.rocketmq.store.PutMessageResult;

/** write and append: puts what a spec says. */
class StoreWriter {
    static void write(List<String> args, boolean append) throws Exception {
        if (args.size() != 2) throw new IllegalArgumentException("usage: " + (append ? "append" : "write") + " SPEC.json STORE_DIR");
        Map<String, Object> spec = map(Json.parse(readText(args.get(0))));
        String dir = args.get(1);
        if (!append && new File(dir, "commitlog").exists()) throw new IllegalArgumentException("store exists already: " + dir);
        if (append && !new File(dir).isDirectory()) throw new IllegalArgumentException("no such store: " + dir);
        List<?> items = list(spec.get("messages"));
        boolean broker = spec.containsKey("filters") || spec.containsKey("config") || truth(spec, "broker");
        for (Object o : items) {
            Map<String, Object> m = map(o);
            broker |= m.containsKey("delayLevel") || m.containsKey("half") || m.containsKey("commit") || m.containsKey("rollback");
            broker |= m.toString().contains("TIMER_DEL");
        }
        Store s = open(dir, spec.containsKey("options") ? map(spec.get("options")) : null, broker, list(spec.get("topics")), list(spec.get("filters")));
        boolean ok = start(s);
        if (append) {
            Map<String, Object> line = StoreReader.recovered(s, ok);
            print(line);
        }
        if (!ok) throw new IllegalStateException("load() failed");
        Map<String, PutMessageResult> halves = new HashMap<>();
        int index = 0;
        for (Object o : items) {
            Map<String, Object> m = map(o);
            if (m.containsKey("pause")) {
                Thread.sleep(num(m, "pause", 0));
                continue;
            }
            PutMessageResult r;
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("put", index);
            if (m.containsKey("batch")) {
                r = s.store.putMessages(batch(s, m));
            } else if (m.containsKey("innerBatch")) {
                r = s.shim.put(s, innerBatch(s, m), false);
            } else if (m.containsKey("commit") || m.containsKey("rollback")) {
                boolean commit = m.containsKey("commit");
                String id = String.valueOf(m.get(commit ? "commit" : "rollback"));
                r = s.shim.endTransaction(s, halves.get(id).getAppendMessageResult(), commit);
                line.put(commit ? "commit" : "rollback", id);
                if (r == null) {
                    print(line);
                    index++;
                    continue;
                }
            } else {
                MessageExt msg = message(s, m);
                if (m.containsKey("half")) {
                    r = s.shim.putHalf(s, msg);
                    halves.put(String.valueOf(m.get("half")), r);
                    line.put("half", m.get("half"));
                } else {
                    r = s.shim.put(s, msg, s.controller != null && !truth(m, "raw"));
                }
            }
            putResult(line, r);
            print(line);
            index++;
        }
        waitDispatched(s);
        if (spec.containsKey("settle")) {
            Thread.sleep(num(spec, "settle", 0));
            waitDispatched(s);
        }
        if (spec.containsKey("config")) config(s, map(spec.get("config")));
        if (spec.containsKey("expire")) {
            print(expire(s, (int) num(map(spec.get("expire")), "files", 1)));
        }
        if (spec.containsKey("filters")) s.controller.getConsumerFilterManager().persist();
        out.flush();
        if ("kill".equals(spec.get("exit"))) {
            if (!truth(spec, "noFlush")) s.store.flush();
            Runtime.getRuntime().halt(0);
        }
        s.shim.stop(s);
        s.store.shutdown();
    }

    static void putResult(Map<String, Object> line, PutMessageResult r) {
        line.put("status", String.valueOf(r.getPutMessageStatus()));
        AppendMessageResult a = r.getAppendMessageResult();
        if (a == null) return;
        line.put("appendStatus", String.valueOf(a.getStatus()));
        line.put("wroteOffset", a.getWroteOffset());
        line.put("wroteBytes", a.getWroteBytes());
        line.put("msgId", a.getMsgId());
        line.put("storeTimestamp", a.getStoreTimestamp());
        line.put("logicsOffset", a.getLogicsOffset());
        line.put("msgNum", a.getMsgNum());
    }

    static MessageExt message(Store s, Map<String, Object> m) throws Exception {
        MessageExt msg = s.shim.newMessage();
        msg.setTopic(str(m, "topic", null));
        common(s, msg, m);
        msg.setBody(body(m.get("body")));
        properties(msg, m);
        if (m.containsKey("delayLevel")) msg.setDelayTimeLevel((int) num(m, "delayLevel", 0));
        s.shim.seal(msg);
        return msg;
    }

    static void common(Store s, MessageExt msg, Map<String, Object> m) throws Exception {
        msg.setQueueId((int) num(m, "queueId", 0));
        msg.setFlag((int) num(m, "flag", 0));
        int sys = (int) num(m, "sysFlag", 0);
        String tx = str(m, "transaction", null);
        if (tx != null) sys |= tx.equals("prepared") ? 0x4 : tx.equals("commit") ? 0x8 : tx.equals("rollback") ? 0xC : 0;
        msg.setSysFlag(sys);
        msg.setBornTimestamp(num(m, "bornTimestamp", System.currentTimeMillis()));
        msg.setBornHost(host(str(m, "bornHost", "192.168.0.1:1234")));
        msg.setStoreHost(host(str(m, "storeHost", "10.0.0.2:10911")));
        msg.setReconsumeTimes((int) num(m, "reconsumeTimes", 0));
        msg.setPreparedTransactionOffset(num(m, "preparedTransactionOffset", 0));
    }

    static void properties(Message msg, Map<String, Object> m) {
        if (m.containsKey("keys")) msg.setKeys(str(m, "keys", null));
        if (m.containsKey("tags")) msg.setTags(str(m, "tags", null));
        if (m.containsKey("properties")) {
            for (Map.Entry<String, Object> e : map(m.get("properties")).entrySet()) {
                String v = String.valueOf(e.getValue());
                if (v.startsWith("{now+") && v.endsWith("}")) {   // absolute times relative to the run
                    v = String.valueOf(System.currentTimeMillis() + Long.parseLong(v.substring(5, v.length() - 1)));
                }
                MessageAccessor.putProperty(msg, e.getKey(), v);
            }
        }
    }

    static List<Message> inner(Map<String, Object> m, String field) throws Exception {
        List<Message> parts = new ArrayList<>();
        for (Object o : list(m.get(field))) {
            Map<String, Object> one = map(o);
            Message msg = new Message();
            msg.setTopic(str(m, "topic", null));
            msg.setFlag((int) num(one, "flag", 0));
            msg.setBody(body(one.get("body")));
            properties(msg, one);
            parts.add(msg);
        }
        return parts;
    }

    static MessageExtBatch batch(Store s, Map<String, Object> m) throws Exception {
        MessageExtBatch b = new MessageExtBatch();
        b.setTopic(str(m, "topic", null));
        common(s, b, m);
        properties(b, m);
        b.setBody(MessageDecoder.encodeMessages(inner(m, "batch")));
        return b;
    }

    static MessageExt innerBatch(Store s, Map<String, Object> m) throws Exception {
        List<Message> parts = inner(m, "innerBatch");
        MessageExt msg = s.shim.newMessage();
        msg.setTopic(str(m, "topic", null));
        common(s, msg, m);
        msg.setSysFlag(msg.getSysFlag() | 0x40 | 0x80);
        msg.setBody(MessageDecoder.encodeMessages(parts));
        properties(msg, m);
        MessageAccessor.putProperty(msg, "INNER_NUM", String.valueOf(parts.size()));
        s.shim.seal(msg);
        return msg;
    }

    static void config(Store s, Map<String, Object> c) throws Exception {
        BrokerController b = s.controller;
        for (Object o : list(c.get("topics"))) b.getTopicConfigManager().updateTopicConfig(s.shim.topicUpdate(map(o)));
        for (Object o : list(c.get("groups"))) s.shim.group(b, map(o));
        for (Object o : list(c.get("offsets"))) {
            Map<String, Object> m = map(o);
            b.getConsumerOffsetManager().commitOffset("127.0.0.1", str(m, "group", null), str(m, "topic", null), (int) num(m, "queueId", 0), num(m, "offset", 0));
        }
        b.getConsumerOffsetManager().persist();
        b.getSubscriptionGroupManager().persist();
        b.getTopicConfigManager().persist();
        for (Object o : list(c.get("laterOffsets"))) {
            Map<String, Object> m = map(o);
            b.getConsumerOffsetManager().commitOffset("127.0.0.1", str(m, "group", null), str(m, "topic", null), (int) num(m, "queueId", 0), num(m, "offset", 0));
        }
        b.getConsumerOffsetManager().persist();
    }

    /** Ages the first commit log files and lets the reference's own cleaners remove what is expired. */
    static Map<String, Object> expire(Store s, int files) throws Exception {
        s.store.flush();
        List<String> names = s.shim.commitLogFiles(s.store);
        long old = System.currentTimeMillis() - 100L * 3600 * 1000;
        for (int i = 0; i < files && i < names.size(); i++) new File(names.get(i)).setLastModified(old);
        int deleted = s.shim.deleteExpired(s.store);
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("expired", deleted);
        line.put("minPhyOffset", s.store.getMinPhyOffset());
        line.put("maxPhyOffset", s.store.getMaxPhyOffset());
        return line;
    }

    /** "ip:port" or "[v6]:port". */
    static SocketAddress host(String text) throws Exception {
        int colon = text.lastIndexOf(':');
        String ip = text.substring(0, colon);
        if (ip.startsWith("[")) ip = ip.substring(1, ip.length() - 1);
        return new InetSocketAddress(InetAddress.getByName(ip), Integer.parseInt(text.substring(colon + 1)));
    }

    /** Text, {"base64": ..}, {"hex": ..}, {"repeat": text, "size": n}, {"seed": n, "size": n}, {"zlib"|"lz4"|"zstd": body}, null. */
    static byte[] body(Object o) throws Exception {
        if (o == null) return null;
        if (o instanceof String) return ((String) o).getBytes(StandardCharsets.UTF_8);
        Map<String, Object> m = map(o);
        if (m.containsKey("base64")) return Base64.getDecoder().decode(str(m, "base64", ""));
        if (m.containsKey("hex")) {
            String h = str(m, "hex", "");
            byte[] b = new byte[h.length() / 2];
            for (int i = 0; i < b.length; i++) b[i] = (byte) Integer.parseInt(h.substring(2 * i, 2 * i + 2), 16);
            return b;
        }
        if (m.containsKey("repeat")) {
            byte[] unit = str(m, "repeat", "x").getBytes(StandardCharsets.UTF_8);
            byte[] b = new byte[(int) num(m, "size", unit.length)];
            for (int i = 0; i < b.length; i++) b[i] = unit[i % unit.length];
            return b;
        }
        if (m.containsKey("seed")) {   // x = x * 6364136223846793005 + 1442695040888963407 (mod 2^64); byte = x >> 56
            long x = num(m, "seed", 0);
            byte[] b = new byte[(int) num(m, "size", 0)];
            for (int i = 0; i < b.length; i++) {
                x = x * 6364136223846793005L + 1442695040888963407L;
                b[i] = (byte) (x >>> 56);
            }
            return b;
        }
        for (String kind : new String[] {"zlib", "lz4", "zstd"}) {
            if (m.containsKey(kind)) return compress(kind, body(m.get(kind)));
        }
        throw new IllegalArgumentException("body: " + m);
    }

    /** zlib by the JDK; LZ4 and ZSTD by the reference's own compressors (4.9.4 and later). */
    static byte[] compress(String kind, byte[] plain) throws Exception {
        if (kind.equals("zlib")) {
            java.io.ByteArrayOutputStream o = new java.io.ByteArrayOutputStream();
            java.util.zip.DeflaterOutputStream d = new java.util.zip.DeflaterOutputStream(o, new java.util.zip.Deflater(5));
            d.write(plain);
            d.close();
            return o.toByteArray();
        }
        String pkg = "org.apache.rocketmq.common.compression.";
        Class<?> type = Class.forName(pkg + "CompressionType");
        Object which = type.getMethod("of", String.class).invoke(null, kind.toUpperCase());
        Object c = Class.forName(pkg + "CompressorFactory").getMethod("getCompressor", type).invoke(null, which);
        return (byte[]) Class.forName(pkg + "Compressor").getMethod("compress", byte[].class, int.class).invoke(c, plain, 5);
    }
}
