// main prints configurations of the transform and filter processors, and after each what the Collector's
// processors do with it: see README.md.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/contexts/xprofile/ottlprofilesample"
	"github.com/open-telemetry/opentelemetry-collector-contrib/pkg/ottl/ottlfuncs"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/filterprocessor"
	"github.com/open-telemetry/opentelemetry-collector-contrib/processor/transformprocessor"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
	"go.opentelemetry.io/collector/consumer/consumertest"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pprofile"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/processor"
	"go.opentelemetry.io/collector/processor/processortest"
	"go.opentelemetry.io/collector/processor/xprocessor"
)

const (
	refused  = "!" // the configuration is not valid
	rejected = "E" // the processor returns an error for the data
)

var (
	ctx      = context.Background()
	settings = componenttest.NewNopTelemetrySettings()
)

/* --- The text of data ------------------------------------------------------------------------- */

// facts contains one entry for each field and attribute that has a value.
type facts map[string]string

func escape(s string) string {
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c < 0x7f && c != '"' && c != '\\' {
			out.WriteByte(c)
		} else {
			fmt.Fprintf(&out, "\\%02x", c)
		}
	}
	return out.String()
}

func value(v pcommon.Value) string {
	switch v.Type() {
	case pcommon.ValueTypeStr:
		return `"` + escape(v.Str()) + `"`
	case pcommon.ValueTypeInt:
		return strconv.FormatInt(v.Int(), 10)
	case pcommon.ValueTypeDouble:
		if math.IsNaN(v.Double()) {
			return "dnan"
		}
		return fmt.Sprintf("d%016x", math.Float64bits(v.Double()))
	case pcommon.ValueTypeBool:
		return strconv.FormatBool(v.Bool())
	case pcommon.ValueTypeBytes:
		return "x" + hex.EncodeToString(v.Bytes().AsRaw())
	case pcommon.ValueTypeSlice:
		var list []string
		for _, element := range v.Slice().All() {
			list = append(list, value(element))
		}
		return "[" + strings.Join(list, ",") + "]"
	case pcommon.ValueTypeMap:
		var list []string
		for key, element := range v.Map().All() {
			list = append(list, escape(key)+":"+value(element))
		}
		slices.Sort(list)
		return "{" + strings.Join(list, ",") + "}"
	}
	return "nil"
}

func (f facts) text(key, text string) {
	if text != "" {
		f[key] = `"` + escape(text) + `"`
	}
}

func (f facts) number(key string, number int64) {
	if number != 0 {
		f[key] = strconv.FormatInt(number, 10)
	}
}

func (f facts) attributes(at string, attributes pcommon.Map) {
	for key, v := range attributes.All() {
		f[at+"@"+escape(key)] = value(v)
	}
}

func (f facts) resource(at string, resource pcommon.Resource) {
	f.attributes(at, resource.Attributes())
	f.number(at+".dropped", int64(resource.DroppedAttributesCount()))
}

func (f facts) scope(at string, scope pcommon.InstrumentationScope) {
	f.text(at+".name", scope.Name())
	f.text(at+".version", scope.Version())
	f.attributes(at, scope.Attributes())
	f.number(at+".dropped", int64(scope.DroppedAttributesCount()))
}

func (f facts) span(at string, span ptrace.Span) {
	trace, id, parent := span.TraceID(), span.SpanID(), span.ParentSpanID()
	f[at+".trace"] = hex.EncodeToString(trace[:])
	f[at+".id"] = hex.EncodeToString(id[:])
	f[at+".parent"] = hex.EncodeToString(parent[:])
	f.text(at+".name", span.Name())
	f.number(at+".kind", int64(span.Kind()))
	f.text(at+".state", span.TraceState().AsRaw())
	f.number(at+".start", int64(span.StartTimestamp()))
	f.number(at+".end", int64(span.EndTimestamp()))
	f.number(at+".code", int64(span.Status().Code()))
	f.text(at+".message", span.Status().Message())
	f.number(at+".dropped", int64(span.DroppedAttributesCount()))
	f.number(at+".events", int64(span.DroppedEventsCount()))
	f.number(at+".links", int64(span.DroppedLinksCount()))
	f.attributes(at, span.Attributes())
	for i, event := range span.Events().All() {
		e := fmt.Sprintf("%se%d", at, i)
		f.text(e+".name", event.Name())
		f.number(e+".time", int64(event.Timestamp()))
		f.number(e+".dropped", int64(event.DroppedAttributesCount()))
		f.attributes(e, event.Attributes())
	}
}

func factsOfTraces(td ptrace.Traces) facts {
	f := facts{}
	for i, rs := range td.ResourceSpans().All() {
		f.resource(fmt.Sprintf("r%d", i), rs.Resource())
		for j, ss := range rs.ScopeSpans().All() {
			f.scope(fmt.Sprintf("r%ds%d", i, j), ss.Scope())
			for k, span := range ss.Spans().All() {
				f.span(fmt.Sprintf("r%ds%dn%d", i, j, k), span)
			}
		}
	}
	return f
}

func (f facts) profile(at string, p pprofile.Profile, dictionary pprofile.ProfilesDictionary) {
	table := dictionary.StringTable()
	indices := func(at string, from pcommon.Int32Slice) {
		for _, i := range from.All() {
			attribute := dictionary.AttributeTable().At(int(i))
			f[at+"@"+escape(table.At(int(attribute.KeyStrindex())))] = value(attribute.Value())
		}
	}
	id := p.ProfileID()
	f[at+".id"] = hex.EncodeToString(id[:])
	f.text(at+".type", table.At(int(p.SampleType().TypeStrindex())))
	f.text(at+".unit", table.At(int(p.SampleType().UnitStrindex())))
	f.text(at+".ptype", table.At(int(p.PeriodType().TypeStrindex())))
	f.text(at+".punit", table.At(int(p.PeriodType().UnitStrindex())))
	f.number(at+".time", int64(p.Time()))
	f.number(at+".duration", int64(p.DurationNano()))
	f.number(at+".period", p.Period())
	f.number(at+".dropped", int64(p.DroppedAttributesCount()))
	f.text(at+".format", p.OriginalPayloadFormat())
	indices(at, p.AttributeIndices())
	for i, sample := range p.Samples().All() {
		indices(fmt.Sprintf("%sx%d", at, i), sample.AttributeIndices())
	}
}

func factsOfProfiles(pd pprofile.Profiles) facts {
	f := facts{}
	for i, rp := range pd.ResourceProfiles().All() {
		f.resource(fmt.Sprintf("r%d", i), rp.Resource())
		for j, sp := range rp.ScopeProfiles().All() {
			f.scope(fmt.Sprintf("r%ds%d", i, j), sp.Scope())
			for k, p := range sp.Profiles().All() {
				f.profile(fmt.Sprintf("r%ds%dp%d", i, j, k), p, pd.Dictionary())
			}
		}
	}
	return f
}

// changes returns the facts that are new or different, and the names of those that are gone.
func changes(before, after facts) string {
	var list []string
	for key, text := range after {
		if before[key] != text {
			list = append(list, key+"="+text)
		}
	}
	for key := range before {
		if _, found := after[key]; !found {
			list = append(list, "-"+key)
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

// kept returns the ids of the spans or profiles.
func kept(f facts) string {
	var list []string
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if strings.HasSuffix(key, ".id") {
			list = append(list, f[key])
		}
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

/* --- Running ---------------------------------------------------------------------------------- */

type input struct{ traces, profiles []byte }

func (in input) newTraces() ptrace.Traces {
	td, err := (&ptrace.JSONUnmarshaler{}).UnmarshalTraces(in.traces)
	if err != nil {
		panic(err)
	}
	return td
}

func (in input) newProfiles() pprofile.Profiles {
	pd, err := (&pprofile.JSONUnmarshaler{}).UnmarshalProfiles(in.profiles)
	if err != nil {
		panic(err)
	}
	return pd
}

func configOf(factory processor.Factory, values map[string]any) (component.Config, error) {
	config := factory.CreateDefaultConfig()
	if err := confmap.NewFromStringMap(values).Unmarshal(config); err != nil {
		return nil, err
	}
	if v, ok := config.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return nil, err
		}
	}
	return config, nil
}

// runTraces returns the processor's output, which is nil if everything is dropped.
func runTraces(factory processor.Factory, values map[string]any, td ptrace.Traces) (*ptrace.Traces, string, error) {
	config, err := configOf(factory, values)
	if err != nil {
		return nil, refused, err
	}
	sink := new(consumertest.TracesSink)
	p, err := factory.CreateTraces(ctx, processortest.NewNopSettings(factory.Type()), config, sink)
	if err != nil {
		return nil, refused, err
	}
	if err := p.ConsumeTraces(ctx, td); err != nil {
		return nil, rejected, err
	}
	if len(sink.AllTraces()) == 0 {
		return nil, "", nil
	}
	return &sink.AllTraces()[0], "", nil
}

func runProfiles(factory processor.Factory, values map[string]any, pd pprofile.Profiles) (*pprofile.Profiles, string, error) {
	config, err := configOf(factory, values)
	if err != nil {
		return nil, refused, err
	}
	sink := new(consumertest.ProfilesSink)
	p, err := factory.(xprocessor.Factory).CreateProfiles(ctx, processortest.NewNopSettings(factory.Type()), config, sink)
	if err != nil {
		return nil, refused, err
	}
	if err := p.ConsumeProfiles(ctx, pd); err != nil {
		return nil, rejected, err
	}
	if len(sink.AllProfiles()) == 0 {
		return nil, "", nil
	}
	return &sink.AllProfiles()[0], "", nil
}

// texts returns a list of the configuration.
func texts(list any) []string {
	var result []string
	items, _ := list.([]any)
	for _, item := range items {
		result = append(result, item.(string))
	}
	return result
}

// runSamples runs statements on samples. The transform processor does not have this context, so its loop is
// repeated here for the context of pkg/ottl.
func runSamples(values, group map[string]any, pd pprofile.Profiles) (string, error) {
	mode := ottl.IgnoreError
	for _, from := range []map[string]any{values, group} {
		if text, ok := from["error_mode"].(string); ok {
			mode = ottl.ErrorMode(text)
		}
	}
	type context = *ottlprofilesample.TransformContext
	parser, err := ottlprofilesample.NewParser(ottlfuncs.StandardFuncs[context](), settings, ottlprofilesample.EnablePathContextNames())
	if err != nil {
		panic(err)
	}
	statements, err := parser.ParseStatements(texts(group["statements"]))
	if err != nil {
		return refused, err
	}
	conditions, err := parser.ParseConditions(texts(group["conditions"]))
	if err != nil {
		return refused, err
	}
	sequence := ottlprofilesample.NewStatementSequence(statements, settings, ottlprofilesample.WithStatementSequenceErrorMode(mode))
	guard := ottlprofilesample.NewConditionSequence(conditions, settings, ottlprofilesample.WithConditionSequenceErrorMode(mode))
	for _, rp := range pd.ResourceProfiles().All() {
		for _, sp := range rp.ScopeProfiles().All() {
			for _, p := range sp.Profiles().All() {
				for _, sample := range p.Samples().All() {
					at := ottlprofilesample.NewTransformContext(rp, sp, p, sample, pd.Dictionary())
					if len(conditions) > 0 {
						holds, err := guard.Eval(ctx, at)
						if err != nil {
							return rejected, err
						}
						if !holds {
							continue
						}
					}
					if err := sequence.Execute(ctx, at); err != nil {
						return rejected, err
					}
				}
			}
		}
	}
	return "", nil
}

func groupOfSamples(values map[string]any) map[string]any {
	if list, _ := values["profile_statements"].([]any); len(list) > 0 {
		if group, ok := list[0].(map[string]any); ok && group["context"] == "profilesample" {
			return group
		}
	}
	return nil
}

func (in input) run(kind string, values map[string]any) (string, error) {
	switch kind {
	case "transform traces":
		out, result, err := runTraces(transformprocessor.NewFactory(), values, in.newTraces())
		if err == nil {
			result = changes(factsOfTraces(in.newTraces()), factsOfTraces(*out))
		}
		return result, err
	case "filter traces":
		out, result, err := runTraces(filterprocessor.NewFactory(), values, in.newTraces())
		if out != nil {
			result = kept(factsOfTraces(*out))
		}
		return result, err
	case "filter profiles":
		out, result, err := runProfiles(filterprocessor.NewFactory(), values, in.newProfiles())
		if out != nil {
			result = kept(factsOfProfiles(*out))
		}
		return result, err
	}
	pd := in.newProfiles()
	var result string
	var err error
	if group := groupOfSamples(values); group != nil {
		result, err = runSamples(values, group, pd)
	} else {
		var out *pprofile.Profiles
		out, result, err = runProfiles(transformprocessor.NewFactory(), values, pd)
		if out != nil {
			pd = *out
		}
	}
	if err == nil {
		result = changes(factsOfProfiles(in.newProfiles()), factsOfProfiles(pd))
	}
	return result, err
}

// result runs one configuration. A panic of the Collector is reported, and the configuration is left out.
func (in input) result(kind, config string) (result string, why error, ok bool) {
	defer func() {
		if failure := recover(); failure != nil {
			fmt.Fprintf(os.Stderr, "panic: %v: %s\n", failure, config)
			ok = false
		}
	}()
	var values map[string]any
	if err := json.Unmarshal([]byte(config), &values); err != nil {
		panic(err)
	}
	result, why = in.run(kind, values)
	return result, why, true
}

func read(path string) []byte {
	data, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	return data
}

func main() {
	seed, _ := strconv.ParseUint(os.Args[3], 10, 64)
	count, _ := strconv.Atoi(os.Args[4])
	in := input{read(os.Args[1]), read(os.Args[2])}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	fmt.Fprintln(out, "# kind, config and, after a second tab, the result of the Collector's processor (v0.165.0); made by main.go, see README.md")
	lines := generate(seed, count)
	if count == 0 {
		scanner := bufio.NewScanner(os.Stdin)
		scanner.Buffer(nil, 1<<20)
		for scanner.Scan() {
			lines = append(lines, scanner.Text())
		}
	}
	for _, line := range lines {
		kind, config, _ := strings.Cut(line, "\t")
		config, _, _ = strings.Cut(config, "\t")
		result, why, ok := in.result(kind, config)
		if !ok {
			continue
		}
		if len(os.Args) > 5 && why != nil {
			result += " " + why.Error()
		}
		fmt.Fprintf(out, "%s\t%s\t%s\n", kind, config, result)
	}
}
