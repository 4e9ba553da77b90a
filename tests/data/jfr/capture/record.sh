#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the recordings of the folder above: record.sh AGENT.jar, with a JDK 17 and the jar of the Maven
# artifact io.pyroscope:agent:2.9.2, which has async-profiler for Linux in it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
out=$here/..
work=$(mktemp -d)
javac -cp "$1" -d "$work" "$here"/*.java

jdk() { # NAME SETTINGS MORE...
    name=$1 settings=$2
    shift 2
    java "-XX:StartFlightRecording=filename=$work/$name.jfr,settings=$settings" "$@" -cp "$work" Busy 2000
}
spans() { # NAME COMMAND
    java -cp "$work:$1" Spans "$3" "$work/$2.jfr" "$work/$2.labels.pb"
}

jdk jdk17-profile profile
cp "$here/all.jfc" "$work/all.jfc"
jdk jdk17-chunks "$work/all.jfc" -XX:FlightRecorderOptions=maxchunksize=1M
spans "$1" agent-itimer start,event=itimer,interval=10ms,alloc=64k,lock=1ms,jfr
spans "$1" agent-wall start,event=wall,interval=20ms,alloc=256k,live,jfr
spans "$1" agent-malloc start,nativemem=1k,jfr
for f in "$work"/*.jfr; do
    gzip -9n <"$f" >"$out/$(basename "$f").gz"
done
cp "$work"/*.labels.pb "$out"
cd "$here/../expect"
for f in "$out"/*.jfr.gz; do
    labels=${f%.jfr.gz}.labels.pb
    [ -f "$labels" ] || labels=
    go run . "$f" $labels | gzip -9n >"${f%.jfr.gz}.expected.gz"
done
rm -r "$work"
