// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/pprofile/pprofileotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
)

const start = 1_700_000_000_000_000_000

// builder makes profiles in the shapes that profilers send; all share one dictionary.
type builder struct {
	all pprofile.Profiles
}

func newBuilder() builder {
	b := builder{pprofile.NewProfiles()}
	dic := b.all.Dictionary()
	dic.StringTable().Append("")
	dic.MappingTable().AppendEmpty()
	dic.LocationTable().AppendEmpty()
	dic.FunctionTable().AppendEmpty()
	dic.LinkTable().AppendEmpty()
	dic.AttributeTable().AppendEmpty()
	dic.StackTable().AppendEmpty()
	return b
}

func (b builder) str(text string) int32 {
	table := b.all.Dictionary().StringTable()
	for i, each := range table.All() {
		if each == text {
			return int32(i)
		}
	}
	table.Append(text)
	return int32(table.Len() - 1)
}

func (b builder) attribute(key, value string) int32 {
	table := b.all.Dictionary().AttributeTable()
	entry := table.AppendEmpty()
	entry.SetKeyStrindex(b.str(key))
	entry.Value().SetStr(value)
	return int32(table.Len() - 1)
}

func (b builder) link(trace pcommon.TraceID, span pcommon.SpanID) int32 {
	table := b.all.Dictionary().LinkTable()
	entry := table.AppendEmpty()
	entry.SetTraceID(trace)
	entry.SetSpanID(span)
	return int32(table.Len() - 1)
}

// stack expects functions, leaf first.
func (b builder) stack(functions ...string) int32 {
	dic := b.all.Dictionary()
	mapping := dic.MappingTable().AppendEmpty()
	mapping.SetMemoryStart(0x400000)
	mapping.SetMemoryLimit(0x800000)
	mapping.SetFilenameStrindex(b.str("/srv/shop"))
	stack := dic.StackTable().AppendEmpty()
	for i, name := range functions {
		function := dic.FunctionTable().AppendEmpty()
		function.SetNameStrindex(b.str(name))
		function.SetFilenameStrindex(b.str("cart.go"))
		location := dic.LocationTable().AppendEmpty()
		location.SetMappingIndex(int32(dic.MappingTable().Len() - 1))
		location.SetAddress(0x400000 + uint64(i))
		line := location.Lines().AppendEmpty()
		line.SetFunctionIndex(int32(dic.FunctionTable().Len() - 1))
		line.SetLine(int64(10 * i))
		stack.LocationIndices().Append(int32(dic.LocationTable().Len() - 1))
	}
	return int32(dic.StackTable().Len() - 1)
}

// profile adds one profile in a separate resource, whose attributes are references.
func (b builder) profile(service, kind, unit string) pprofile.Profile {
	resource := b.all.ResourceProfiles().AppendEmpty()
	resource.Resource().Attributes().PutStr("service.name", service)
	resource.Resource().Attributes().PutInt("process.pid", 4711)
	names := resource.Resource().Attributes().PutEmptySlice("process.command_args")
	names.AppendEmpty().SetStr("shop")
	names.AppendEmpty().SetStr("--fast")
	scope := resource.ScopeProfiles().AppendEmpty()
	scope.Scope().SetName("profiler")
	scope.Scope().Attributes().PutStr("scope.key", service)
	profile := scope.Profiles().AppendEmpty()
	profile.SampleType().SetTypeStrindex(b.str(kind))
	profile.SampleType().SetUnitStrindex(b.str(unit))
	profile.SetTime(start)
	profile.SetDurationNano(5_000_000_000)
	profile.SetProfileID(pprofile.ProfileID{15: byte(b.all.ResourceProfiles().Len())})
	return profile
}

// shapes links its samples to the spans in rotation.
func shapes(service string, spans []span) pprofile.Profiles {
	b := newBuilder()

	// CPU time as an eBPF profiler sends it: no values, one timestamp for each hit.
	onCPU := b.profile("shop-oncpu", "samples", "count")
	onCPU.PeriodType().SetTypeStrindex(b.str("cpu"))
	onCPU.PeriodType().SetUnitStrindex(b.str("nanoseconds"))
	onCPU.SetPeriod(50_000_000)
	hits := onCPU.Samples().AppendEmpty()
	hits.SetStackIndex(b.stack("priceCart", "main"))
	hits.AttributeIndices().Append(b.attribute("thread.name", "worker-1"))
	hits.TimestampsUnixNano().Append(start+1, start+50_000_001, start+100_000_001)

	// Off-CPU time: values and timestamps in parallel, no period.
	offCPU := b.profile("shop-offcpu", "off_cpu", "nanoseconds")
	waits := offCPU.Samples().AppendEmpty()
	waits.SetStackIndex(b.stack("futex_wait", "lock", "main"))
	waits.Values().Append(1_000, 2_000_000)
	waits.TimestampsUnixNano().Append(start+7, start+9)

	// Samples as an SDK's profiler sends them: values, and links to their spans.
	linked := b.profile(service, "cpu", "nanoseconds")
	stack := b.stack("render", "main")
	for n := range 20 {
		sample := linked.Samples().AppendEmpty()
		sample.SetStackIndex(stack)
		sample.Values().Append(int64(n+1) * 10_000_000)
		named := spans[n%len(spans)]
		sample.SetLinkIndex(b.link(named.trace, named.span))
	}
	unlinked := linked.Samples().AppendEmpty()
	unlinked.SetStackIndex(stack)
	unlinked.Values().Append(1)
	return b.all
}

// span is the target of a sample's link.
type span struct {
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// ownSpans are ids of spans that no client sends.
func ownSpans() (spans []span) {
	for n := range 20 {
		spans = append(spans, span{pcommon.TraceID{15: 1}, pcommon.SpanID{7: byte(n + 1)}})
	}
	return spans
}

// readSpans parses a client's output about the spans it sent.
func readSpans(in io.Reader) (spans []span, err error) {
	lines := json.NewDecoder(in)
	for {
		var ids [2]string
		if err := lines.Decode(&ids); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		var each span
		if _, err := hex.Decode(each.trace[:], []byte(ids[0])); err != nil {
			return nil, err
		}
		if _, err := hex.Decode(each.span[:], []byte(ids[1])); err != nil {
			return nil, err
		}
		spans = append(spans, each)
	}
	if len(spans) == 0 {
		return nil, errors.New("no spans to link to")
	}
	return spans, nil
}

func sendProfiles(ctx context.Context, endpoint, transport, service string, spans []span, compress bool) error {
	request := pprofileotlp.NewExportRequestFromProfiles(shapes(service, spans))
	sent, err := request.MarshalJSON()
	if err != nil {
		return err
	}
	if transport == "grpc" {
		err = overGRPC(ctx, endpoint, request, compress)
	} else {
		err = overHTTP(ctx, endpoint, transport, request, compress)
	}
	if err != nil {
		return err
	}
	_, err = os.Stdout.Write(sent)
	return err
}

func overGRPC(ctx context.Context, endpoint string, request pprofileotlp.ExportRequest, compress bool) error {
	var options []grpc.CallOption
	if compress {
		options = append(options, grpc.UseCompressor("gzip"))
	}
	connection, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	response, err := pprofileotlp.NewGRPCClient(connection).Export(ctx, request, options...)
	if err != nil {
		return err
	}
	if partial := response.PartialSuccess(); partial.RejectedProfiles() != 0 || partial.ErrorMessage() != "" {
		return fmt.Errorf("partial success: %d %s", partial.RejectedProfiles(), partial.ErrorMessage())
	}
	return nil
}

func overHTTP(ctx context.Context, endpoint, encoding string, request pprofileotlp.ExportRequest, compress bool) error {
	kind, marshal := "application/x-protobuf", request.MarshalProto
	if encoding == "json" {
		kind, marshal = "application/json", request.MarshalJSON
	}
	body, err := marshal()
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	if compress {
		writer := gzip.NewWriter(&packed)
		_, _ = writer.Write(body)
		_ = writer.Close()
		body = packed.Bytes()
	}
	// A body of unknown length is sent in chunks, as the Go exporters do.
	post, err := http.NewRequestWithContext(ctx, http.MethodPost,
		"http://"+endpoint+"/v1development/profiles", io.MultiReader(bytes.NewReader(body)))
	if err != nil {
		return err
	}
	post.Header.Set("Content-Type", kind)
	post.Header.Set(pprofileotlp.DevelopmentVersionHeader, pprofileotlp.DevelopmentVersion)
	if compress {
		post.Header.Set("Content-Encoding", "gzip")
	}
	answer, err := http.DefaultClient.Do(post)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(answer.Body)
		return fmt.Errorf("%s: %s", answer.Status, text)
	}
	return nil
}
