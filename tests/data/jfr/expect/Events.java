// SPDX-License-Identifier: Apache-2.0

import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.zip.GZIPInputStream;
import jdk.jfr.consumer.RecordedEvent;
import jdk.jfr.consumer.RecordedFrame;
import jdk.jfr.consumer.RecordedMethod;
import jdk.jfr.consumer.RecordedObject;
import jdk.jfr.consumer.RecordedThread;
import jdk.jfr.consumer.RecordingFile;

/**
 * What the JDK's own reader says of a recording, event by event, as the text of
 * tests/support/profile_view.h: {@code java Events.java RECORDING.jfr.gz}. Times of a file that nobody says
 * more about: periods are those of its settings.
 */
class Events {
    /** Of an event: the period's type, sample types, and the field that is the second one's value. */
    record Kind(String period, String count, String sum, String field) {}

    static final Map<String, Kind> KINDS = Map.of(
        "jdk.ObjectAllocationInNewTLAB", new Kind("space bytes", "alloc_in_new_tlab_objects count", "alloc_in_new_tlab_bytes bytes", "tlabSize"),
        "jdk.ObjectAllocationOutsideTLAB", new Kind("space bytes", "alloc_outside_tlab_objects count", "alloc_outside_tlab_bytes bytes", "allocationSize"),
        "jdk.ObjectAllocationSample", new Kind("space bytes", "alloc_sample_objects count", "alloc_sample_bytes bytes", "weight"),
        "jdk.JavaMonitorEnter", new Kind("mutex count", "contentions count", "delay nanoseconds", null),
        "jdk.ThreadPark", new Kind("block count", "contentions count", "delay nanoseconds", null),
        "profiler.LiveObject", new Kind("objects count", "live count", null, null),
        "profiler.Malloc", new Kind("- -", "malloc_objects count", "malloc_bytes bytes", "size"));
    static final String CPU = "cpu nanoseconds cpu nanoseconds", WALL = "wall nanoseconds wall nanoseconds";

    static final Map<String, Map<String, Long>> blocks = new TreeMap<>();
    static String event;
    static long periodNs = 10_000_000, wallNs, executionSample;

    static void put(String types, String key, long value) {
        blocks.computeIfAbsent("# - " + types, k -> new TreeMap<>()).merge(key, value, Long::sum);
    }

    static void setting(RecordedEvent e) {
        String name = e.getString("name"), value = e.getString("value");
        if (name.equals("event"))
            event = value;
        if (e.getLong("id") == executionSample && name.equals("wall"))
            wallNs = Long.parseLong(value);
        if (e.getLong("id") != executionSample || !name.equals("period") && !name.equals("interval"))
            return;
        periodNs = value.endsWith(" ms") ? Long.parseLong(value.replace(" ms", "")) * 1_000_000 : Long.parseLong(value);
    }

    static String method(RecordedMethod m) {
        String type = ((RecordedObject) m.getType()).getString("name");
        return type.replaceFirst("(.*\\$\\$Lambda)(\\$\\d*)?[./](0x)?[0-9a-f]+$", "$1_") + "." + m.getName();
    }

    static String stack(RecordedEvent e) {
        List<String> frames = new ArrayList<>();
        if (e.getStackTrace() != null)
            for (RecordedFrame f : e.getStackTrace().getFrames())
                frames.add(method(f.getMethod()) + ":" + Math.max(0, f.getInt("lineNumber")));
        return String.join(";", frames);
    }

    static long number(RecordedEvent e, String field) {
        return e.hasField(field) ? e.getLong(field) : 0;
    }

    static String labels(RecordedEvent e) {
        TreeSet<String> labels = new TreeSet<>();
        RecordedThread t = e.getThread(e.hasField("sampledThread") ? "sampledThread" : "eventThread");
        if (t != null) {
            labels.add("thread.name=" + (t.getJavaName() != null ? t.getJavaName() : t.getOSName()));
            if (t.getJavaThreadId() > 0)
                labels.add("thread.id=" + t.getJavaThreadId());
        }
        long span = number(e, "spanId"), hi = number(e, "traceIdHi"), lo = number(e, "traceIdLo");
        if (span != 0)
            labels.add(String.format("profile_id=%016x", span));
        if (hi != 0 || lo != 0)
            labels.add(String.format("trace_id=%016x%016x", hi, lo));
        return labels.isEmpty() ? "" : "|" + String.join(",", labels);
    }

    static void sample(RecordedEvent e) {
        String type = e.getEventType().getName();
        Kind kind = KINDS.get(type);
        boolean execution = type.equals("jdk.ExecutionSample"), clock = type.equals("profiler.WallClockSample");
        if (kind == null && !execution && !clock)
            return;
        long ns = e.getStartTime().getEpochSecond() * 1_000_000_000 + e.getStartTime().getNano();
        String key = stack(e) + labels(e) + "@" + ns;
        boolean wall = "wall".equals(event);
        if (kind == null) {
            String state = e.getString("state");
            long value = clock ? e.getLong("samples") : 1;
            if (execution ? !state.equals("STATE_SLEEPING") : wall && state.equals("STATE_RUNNABLE"))
                put(CPU, key, value);
            if (clock || wall)
                put(WALL, key, value);
            return;
        }
        put(kind.count + " " + kind.period, key, 1);
        if (kind.sum != null)
            put(kind.sum + " " + kind.period, key, kind.field != null ? e.getLong(kind.field) : e.getDuration().toNanos());
    }

    /** A chunk by itself: from a whole file the JDK counts the ticks of all chunks from the first one's. */
    static List<RecordedEvent> readChunk(byte[] chunk) throws Exception {
        Path file = Files.createTempFile("chunk", ".jfr");
        Files.write(file, chunk);
        try (RecordingFile f = new RecordingFile(file)) {
            for (var type : f.readEventTypes())
                if (type.getName().equals("jdk.ExecutionSample"))
                    executionSample = type.getId();
        }
        List<RecordedEvent> events = RecordingFile.readAllEvents(file);
        Files.delete(file);
        return events;
    }

    public static void main(String[] args) throws Exception {
        List<RecordedEvent> events = new ArrayList<>();
        try (var in = new GZIPInputStream(Files.newInputStream(Path.of(args[0])))) {
            ByteBuffer all = ByteBuffer.wrap(in.readAllBytes());
            while (all.hasRemaining()) {
                byte[] chunk = new byte[(int) all.getLong(all.position() + 8)];
                all.get(chunk);
                events.addAll(readChunk(chunk));
            }
        }
        for (RecordedEvent e : events)
            if (e.getEventType().getName().equals("jdk.ActiveSetting"))
                setting(e);
        events.forEach(Events::sample);
        System.out.print("jfr_event=" + (event == null ? "-" : event) + "\n");
        blocks.forEach((types, lines) -> {
            long unit = types.equals("# - " + CPU) ? periodNs : !types.equals("# - " + WALL) ? 1
                : wallNs > 0 ? wallNs : periodNs;
            System.out.print(types + "\n");
            lines.forEach((key, value) -> System.out.print(key + " " + value * unit + "\n"));
        });
    }
}
