#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the recordings of the folder above: record.sh AGENT.jar, with a JDK 17 and the jar of the Maven
# artifact io.pyroscope:agent:2.9.2, which has async-profiler for Linux in it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$(dirname "$here")
work=$(mktemp -d)
jar=$1
javac -cp "$jar" -d "$work" "$here"/*.java

jdk() { # NAME SETTINGS MS...
    name=$1 settings=$2
    shift 2
    java "-XX:StartFlightRecording=filename=$work/$name.jfr,settings=$settings" -cp "$work" Busy "$@"
}
agent() { # NAME COMMAND
    java -cp "$work:$jar" Spans "$2" "$work/$1.jfr" "$work/$1.labels.pb"
}

jdk jdk17-default default 1000
jdk jdk17-chunks "$here/all.jfc" 400 400 400
agent agent-itimer start,event=itimer,interval=10ms,alloc=512k,lock=1ms,jfr
agent agent-wall start,event=wall,interval=20ms,alloc=1m,live,jfr
agent agent-both start,event=itimer,interval=10ms,wall=50ms,jfr
agent agent-malloc start,nativemem=1k,jfr
for f in "$work"/*.jfr; do
    gzip -9n <"$f" >"$out/$(basename "$f").gz"
done
cp "$work"/*.labels.pb "$out"
cd "$here/../expect"
for f in "$out"/*.jfr.gz; do
    labels=${f%.jfr.gz}.labels.pb
    [ -f "$labels" ] || labels=
    go run . "$f" $labels | gzip -9n >"${f%.jfr.gz}.expected.gz"
    java -Dfile.encoding=UTF-8 Events.java "$f" | gzip -9n >"${f%.jfr.gz}.events.gz"
done
rm -r "$work"
