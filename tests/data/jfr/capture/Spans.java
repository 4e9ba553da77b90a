// SPDX-License-Identifier: Apache-2.0

import io.pyroscope.PyroscopeAsyncProfiler;
import io.pyroscope.labels.v2.LabelsSet;
import io.pyroscope.labels.v2.Pyroscope;
import io.pyroscope.labels.v2.ScopedContext;
import io.pyroscope.vendor.one.profiler.AsyncProfiler;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * What Pyroscope's Java agent records: {@code Spans COMMAND RECORDING LABELS} starts its async-profiler with
 * COMMAND, works in spans with labels as the agent's OpenTelemetry bridge sets them, and writes both files.
 */
class Spans {
    public static void main(String[] args) throws Exception {
        AsyncProfiler profiler = PyroscopeAsyncProfiler.getAsyncProfiler();
        ScopedContext.ENABLED.set(true);
        profiler.execute(args[0] + ",file=" + args[1]);
        Thread checkout = new Thread(() -> {
            profiler.setTracingContext(0x00f067aa0ba902b7L, Pyroscope.LabelsWrapper.registerConstant("GET /checkout"));
            profiler.setTraceId(0x4bf92f3577b34da6L, 0xa3ce929d0e0e4736L);
            try (ScopedContext c = new ScopedContext(new LabelsSet("customer", "gold", "region", "eu"))) {
                Busy.compute(System.nanoTime() + 400_000_000L);
                Busy.allocate(System.nanoTime() + 300_000_000L);
            }
            profiler.setTracingContext(-2L, 0); // an id whose first bit is set, a span without a name
            Busy.compute(System.nanoTime() + 200_000_000L);
            profiler.setTracingContext(0, 0);
            profiler.setTraceId(0, 0);
            try (ScopedContext c = new ScopedContext(new LabelsSet("customer", "none"))) {
                Busy.compute(System.nanoTime() + 200_000_000L);
            }
        }, "checkout");
        checkout.start();
        Busy.all(1000);
        checkout.join();
        profiler.execute("stop");
        Files.write(Path.of(args[2]), Pyroscope.LabelsWrapper.dump().toByteArray());
    }
}
