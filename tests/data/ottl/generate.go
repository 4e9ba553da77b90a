package main

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
)

// generator makes configurations with random statements and conditions.
type generator struct {
	*rand.Rand
	context string // context of the statements: the name that its paths begin with
	depth   int
	filter  bool // the text is a condition of a filter, which has no cache
}

func (g *generator) of(choices ...string) string { return choices[g.IntN(len(choices))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// quote returns the text in double quotes. Unlike strconv.Quote, it keeps backslashes: the texts below
// contain escapes of the language.
func quote(text string) string { return `"` + text + `"` }

func (g *generator) text() string {
	return quote(g.of("", "", "a", "x", "Hello World", "hello", "v", "k", "text", "42", "-7", "+5", " 5 ", "3.5", ".5", "1e3", "0x1f",
		"0b1", "1_000", "NaN", "inf", "-Infinity", "9223372036854775808", "true", "false", "nil", "Grüße", "世界", "€", "\\u00e9", "\\n", "a\\tb",
		"\\\"q\\\"", "\\\\d", "\\x41", "\\101", "\\a", "GET /cart/42", "a,b,,c", "someName", "HTTP-server_id2", "ID", "Server", "Consumer",
		"SPAN_KIND_CLIENT", "0102030405060708", "0102030405060708090a0b0c0d0e0f10", "zz02030405060708", "0000000000000000",
		"{\\\"a\\\": [1, 2.5, \\\"b\\\", null]}", "[]", "{}", "[1,2", "{\\\"a\\\":1,\\\"a\\\":2}", "7", "null", "\\\"s\\\"", "[1e400]", "[\\\"\\\\u00e9\\\"]",
		"ÄÖÜ ß ñ", "ЖЁ", "ΑΣ", "a.b c-d", "  Trim me ", "<&>", "\u2028", "'"))
}

func (g *generator) badText() string {
	return g.of(`"\z"`, `"\'"`, `"open`, `'single'`, `"\u12"`, `"\xg1"`, `"\400"`, `"a" "b"`)
}

func (g *generator) integer() string {
	return g.of("0", "1", "2", "3", "5", "7", "-1", "-5", "+3", "42", "100", "1000000", "9223372036854775807", "-9223372036854775807",
		"010", "-0", "1767225600000000000")
}

func (g *generator) real() string {
	return g.of("1.5", "0.5", ".5", "5.", "-1.5", "2.0", "1.0e3", "1.5e-7", "1e-7.", "1.0e300", "5.0", "-0.0", "100000000000000000000000.0", "0.1", "1.0e21", "123456789.125")
}

func (g *generator) bytes() string { return g.of("0x00", "0x0aff", "0xFF41", "0x0001ff41") }

var keys = map[string][]string{
	"span": {"s", "s", "e", "u", "num", "f", "url", "snake", "js", "ja", "i", "i", "z", "min", "max", "d", "d", "d5", "huge", "t", "fa", "by", "m", "l",
		"le", "me", "nil", "missing", "new"},
	"spanevent":     {"s", "i", "l", "missing", "new"},
	"resource":      {"service.name", "s", "i", "m", "l", "missing"},
	"scope":         {"s", "i", "t", "missing"},
	"profile":       {"s", "i", "m", "l", "missing", "d"},
	"profilesample": {"s", "i", "d", "l", "m", "t", "thread.name", "gc", "missing"},
}

// attribute returns the path of an attribute, or of an element of an attribute.
func (g *generator) attribute(context string) string {
	path := context + ".attributes[" + quote(g.of(keys[context]...)) + "]"
	if g.chance(85) {
		return path
	}
	switch g.IntN(4) {
	case 0:
		return context + `.attributes["m"]` + g.of(`["k"]`, `["n"]["x"]`, `["n"]["x"][1]`, `["n"]["x"][2]["y"]`, `["d"]`, `["by"]`, `["no"]`, `["no"]["no"]`, `["n"]`, `[0]`, `["k"]["x"]`)
	case 1:
		return context + `.attributes["l"]` + g.of("[0]", "[1]", "[2]", "[3]", `[4]["q"]`, "[4]", "[5]", "[6]", "[99]", `["0"]`, "[0][0]", `[0]["x"]`)
	case 2:
		return context + `.attributes["new"]` + g.of(`["a"]`, "[0]", "[2]", `["a"]["b"]`, `[1]["b"]`, `["a"][0]`)
	}
	return path + g.of(`["k"]`, "[0]")
}

var fields = map[string][]string{
	"span": {"name", "kind", "kind.string", "kind.deprecated_string", "status.code", "status.message", "start_time_unix_nano",
		"end_time_unix_nano", "trace_state", `trace_state["a"]`, `trace_state["b"]`, `trace_state["c"]`, "trace_id.string", "span_id.string",
		"parent_span_id.string", "dropped_attributes_count", "dropped_events_count", "dropped_links_count"},
	"spanevent": {"name", "time_unix_nano", "dropped_attributes_count"},
	"resource":  {"dropped_attributes_count"},
	"scope":     {"name", "version", "dropped_attributes_count"},
	"profile": {"sample_type.type", "sample_type.unit", "period_type.type", "period_type.unit", "time_unix_nano", "duration_unix_nano", "period",
		"profile_id.string", "dropped_attributes_count", "original_payload_format"},
	"profilesample": {"values", "timestamps_unix_nano"},
}

// read returns a path that the context can read.
func (g *generator) read() string {
	context := g.context
	outer := map[string][]string{"span": {"scope", "resource"}, "spanevent": {"span", "span", "scope", "resource"}, "scope": {"resource"},
		"profile": {"scope", "resource"}, "profilesample": {"profile", "profile", "scope", "resource"}}
	if len(outer[context]) > 0 && g.chance(15) {
		context = g.of(outer[context]...)
	}
	if !g.filter && context == g.context && g.chance(4) {
		return context + `.cache["c"]`
	}
	if g.chance(6) {
		return context + ".attributes"
	}
	if g.chance(22) {
		return context + "." + g.of(fields[context]...)
	}
	return g.attribute(context)
}

// write returns the target of an editor. Statements change the messages of their context, and resources; those of a span
// event also change the span.
func (g *generator) writeContext() string {
	if g.context == "spanevent" && g.chance(15) {
		return "span"
	}
	if g.context != "resource" && g.chance(8) {
		return "resource"
	}
	return g.context
}

func (g *generator) target() string {
	context := g.writeContext()
	switch {
	case context == g.context && g.chance(4):
		return context + `.cache["c"]`
	case g.chance(4):
		return context + ".attributes"
	case g.chance(30) && context != "profilesample":
		return context + "." + g.of(fields[context]...)
	}
	return g.attribute(context)
}

func (g *generator) mapTarget() string {
	context := g.writeContext()
	switch {
	case g.chance(70):
		return context + ".attributes"
	case g.chance(60):
		return context + `.attributes["m"]`
	case g.chance(30):
		return context + ".cache"
	}
	return g.attribute(context)
}

func (g *generator) pattern() string {
	return quote(g.of("a", "o", "l+", "^G", "^", "$", "", "^$", "\\\\d+", "(o)(.)", "(?P<n>l+)(o)?", "(?<n>[a-z])", "[a-z]*", "(?i)hello", "a|b|World",
		"\\\\bWorld\\\\b", "\\\\pL+", "\\\\p{Greek}", "[[:alpha:]]+", "(?s).", "x{2,3}", "\\\\s", "[^a-z ]", "(?:ab)?", "o*", "\\\\.", "\\\\Qa.b\\\\E", "\\\\z", "\\\\w+",
		"(?m)^.", "(?U)l+", "l+?", ".*", "^s$", "^(s|i)$", "e", "世", "ß", "\\\\x{20AC}", "[\\\\d_]", "=([^&]*)", "1", "t.*e"))
}

func (g *generator) badPattern() string {
	return quote(g.of("(", "[", "*", "a**", "(?<n", "x{3,2}", ")", "[z-a]", "\\\\", "\\\\p{Nope}", "(?z)", "\\\\8"))
}

func (g *generator) replacement() string {
	return quote(g.of("", "X", "-", "$1", "${1}x", "$1x", "$n", "${n}!", "$$", "$", "${", "[$0]", "$2$1", "$-", "a$", "${1", "\\n", "é", "$99", "$$1"))
}

// value returns an expression of any type.
func (g *generator) value() string {
	switch g.IntN(16) {
	case 0, 1, 2:
		return g.stringValue()
	case 3, 4, 5:
		return g.number()
	case 6:
		return g.of("true", "false", "nil")
	case 7:
		return g.bytes()
	case 8:
		return g.list()
	case 9:
		return g.mapValue()
	case 10:
		return g.boolean()
	}
	return g.read()
}

func (g *generator) nested(simple, complex func() string) string {
	if g.depth > 2 || g.chance(45) {
		return simple()
	}
	g.depth++
	defer func() { g.depth-- }()
	return complex()
}

func (g *generator) stringValue() string {
	return g.nested(func() string {
		if g.chance(50) {
			return g.read()
		}
		return g.text()
	}, func() string {
		s := g.stringValue
		switch g.IntN(12) {
		case 0, 1:
			return "Concat([" + g.items(3, g.value) + "], " + s() + ")"
		case 2, 3:
			return "ConvertCase(" + s() + ", " + quote(g.of("lower", "upper", "snake", "camel")) + ")"
		case 4, 5:
			safe := g.of("", "", ", true", ", false", ", utf8_safe=true")
			return "Substring(" + s() + ", " + g.number() + ", " + g.number() + safe + ")"
		case 6:
			return g.of("SHA256(", "SHA1(") + s() + ")"
		case 7:
			return g.of("ToLowerCase(", "ToUpperCase(") + s() + ")"
		case 8:
			return "Split(" + s() + ", " + s() + ")" + g.of("[0]", "[1]", "[9]")
		case 9:
			return "ParseJSON(" + s() + ")" + g.of(`["a"]`, `["b"]`, `["c"]["d"]`, "[0]", "[1]")
		}
		return "String(" + g.value() + ")"
	})
}

func (g *generator) number() string {
	return g.nested(func() string {
		switch g.IntN(5) {
		case 0:
			return g.read()
		case 1:
			return g.real()
		}
		return g.integer()
	}, func() string {
		switch g.IntN(7) {
		case 0:
			return "Int(" + g.value() + ")"
		case 1:
			return "Double(" + g.value() + ")"
		case 2:
			return "Len(" + g.value() + ")"
		case 3:
			return "(" + g.number() + g.of(" + ", " - ", " * ", " / ") + g.number() + ")"
		case 4:
			return g.number() + g.of(" + ", " - ", " * ", " / ", "+", "-", "*") + g.number()
		case 5:
			return g.of("-", "+") + g.attribute(g.context)
		}
		return g.attribute(g.context)
	})
}

// items returns random elements of a list or the like.
func (g *generator) items(most int, item func() string) string {
	items := make([]string, g.IntN(most+1))
	for i := range items {
		items[i] = item()
	}
	return strings.Join(items, ", ")
}

// scalar returns an expression that is neither a list nor a map.
func (g *generator) scalar() string {
	switch g.IntN(8) {
	case 0, 1:
		return g.text()
	case 2, 3:
		return g.integer()
	case 4:
		return g.real()
	case 5:
		return g.of("true", "false", "nil")
	case 6:
		return g.bytes()
	}
	return g.of("Concat([", "Concat([", "Concat([1, ") + g.items(2, g.value) + `], "-")`
}

// list returns a list. The elements of a list in brackets are neither maps, nor lists from other expressions: README.md
// describes what the Collector does with those.
func (g *generator) list() string {
	return g.nested(func() string {
		return g.of("[]", `["a"]`, `["x", "y"]`, "[1, 2]", "[1.5]", "[true, nil]", `[["a"], []]`, "[0x01]", `["a", 1, true]`)
	}, func() string {
		return "[" + g.items(3, g.scalar) + "]"
	})
}

func (g *generator) mapValue() string {
	return g.nested(func() string {
		return g.of("{}", `{"a": 1}`, `{"k": "v"}`, `{"s": "new", "x": nil}`, `{"a": {"b": [1, "c"]}}`, `{"i": 1.5, "y": true}`, `{"a": 1, "a": 2}`,
			`{"0": 0x01}`, `{"a": 1,}`)
	}, func() string {
		switch g.IntN(4) {
		case 0:
			return "ParseJSON(" + g.stringValue() + ")"
		case 1:
			return g.of("resource", g.context) + ".attributes"
		}
		return "{" + g.items(2, func() string {
			return quote(g.of("a", "b", "s", "k", "")) + ": " + g.of(g.scalar(), g.scalar(), `[1, "x"]`, `{"c": true}`, "[]")
		}) + "}"
	})
}

// element returns an element of a list or map for the function set, which accepts all types.
func (g *generator) element() string {
	return g.of(g.scalar(), g.read(), g.mapValue(), "Split("+g.stringValue()+", "+g.text()+")")
}

func (g *generator) boolean() string {
	switch g.IntN(6) {
	case 0, 1:
		return g.of("IsString(", "IsBool(", "IsInt(", "IsDouble(", "IsList(", "IsMap(") + g.value() + ")"
	case 2:
		return g.of("HasPrefix(", "HasSuffix(") + g.stringValue() + ", " + g.stringValue() + ")"
	case 3:
		if g.context == "span" || g.context == "spanevent" {
			return "IsRootSpan()"
		}
	}
	return "IsMatch(" + g.value() + ", " + g.pattern() + ")"
}

func (g *generator) condition() string {
	if g.depth < 2 && g.chance(30) {
		g.depth++
		defer func() { g.depth-- }()
		switch g.IntN(5) {
		case 0:
			return "not " + g.condition()
		case 1:
			return "(" + g.condition() + ")"
		case 2:
			return "not (" + g.condition() + g.of(" and ", " or ") + g.condition() + ")"
		}
		return g.condition() + g.of(" and ", " or ") + g.condition()
	}
	if g.chance(30) {
		return g.boolean()
	}
	if g.chance(4) {
		return g.of("true", "false", "not true")
	}
	operator := g.of(" == ", " != ", " < ", " <= ", " > ", " >= ", "==")
	switch g.IntN(5) {
	case 0:
		return g.number() + operator + g.number()
	case 1:
		return g.stringValue() + operator + g.stringValue()
	case 2:
		return g.read() + g.of(" == ", " != ", " < ", " >= ") + "nil"
	}
	return g.value() + operator + g.value()
}

func (g *generator) editor() string {
	switch g.IntN(16) {
	case 0:
		return "delete_key(" + g.mapTarget() + ", " + g.of(quote(g.of(keys[g.context]...)), g.stringValue()) + ")"
	case 1:
		return "delete_matching_keys(" + g.mapTarget() + ", " + g.pattern() + ")"
	case 2:
		return "keep_keys(" + g.mapTarget() + ", " + g.keyList() + ")"
	case 3, 4:
		return "replace_pattern(" + g.target() + ", " + g.pattern() + ", " + g.of(g.replacement(), g.replacement(), g.stringValue()) + ")"
	case 5, 6:
		return "replace_all_patterns(" + g.mapTarget() + ", " + quote(g.of("value", "value", "key")) + ", " + g.pattern() + ", " + g.replacement() + ")"
	case 7:
		return "truncate_all(" + g.mapTarget() + ", " + g.of("0", "1", "2", "3", "4", "5", "6", "8", "11", "100", "-1") +
			g.of("", "", ", true", ", false", ", utf8_safe=false") + ")"
	case 8:
		return "limit(" + g.mapTarget() + ", " + g.of("0", "1", "2", "3", "5", "20", "100", "-1") + ", " + g.keyList() + ")"
	case 9, 10:
		return "merge_maps(" + g.mapTarget() + ", " + g.of(g.mapValue(), g.mapValue(), g.value()) + ", " + quote(g.of("insert", "update", "upsert")) + ")"
	}
	if g.chance(10) {
		return "set(" + g.target() + ", " + g.of("["+g.items(3, g.element)+"]", "Split("+g.stringValue()+", "+g.text()+")") + ")"
	}
	return "set(" + g.target() + ", " + g.value() + ")"
}

func (g *generator) keyList() string {
	list := make([]string, g.IntN(4))
	for i := range list {
		list[i] = quote(g.of(keys[g.context]...))
	}
	return "[" + strings.Join(list, ", ") + "]"
}

// statement returns a statement whose value is not the map that the statement changes: README.md describes what the
// Collector does then.
func (g *generator) statement() string {
	text := g.editor()
	for isOfItself(text) {
		text = g.editor()
	}
	if g.chance(25) {
		text += " where " + g.condition()
	}
	return text
}

func isOfItself(text string) bool {
	target, value, _ := strings.Cut(text, ",")
	function, path, _ := strings.Cut(target, "(")
	root, _, _ := strings.Cut(path, "[")
	if function == "merge_maps" && strings.Contains(value, path) {
		return true
	}
	isMap := strings.HasSuffix(root, ".attributes") || strings.HasSuffix(root, ".cache")
	return isMap && strings.Contains(strings.ReplaceAll(value+" ", root+"[", ""), root)
}

// wrong changes a text such that it is probably not valid.
func (g *generator) wrong(text string) string {
	switch g.IntN(13) {
	case 12:
		token := g.of("(", ")", "[", "]", ".", ",")
		return strings.Replace(text, token, g.of(" ", "\t", "\n ")+token+g.of("", " ", "\n"), 1)
	case 0:
		return strings.Replace(text, ", ", g.of(" ", ",, ", ", "+g.badText()+", "), 1)
	case 1:
		return strings.Replace(text, "attributes", g.of("attribute", "Attributes", "attributes.x", "attributes[]", "attributes[x]"), 1)
	case 2:
		return strings.Replace(text, "(", g.of("", "((", " (", "[", "( "), 1)
	case 3:
		return strings.Replace(text, ")", g.of("", "))", " )", "]", ")[0]", `)["a"]`), 1)
	case 4:
		at := g.IntN(len(text) + 1)
		return text[:at] + g.of(",", "(", ")", `"`, "=", "[", "]", "-", "+", "not ", "1", "x", "$", "é", ".", "==", "@", "A") + text[at:]
	case 5:
		at := g.IntN(len(text))
		if text[at] == '_' { // names of arguments without underscores
			at = 0
		}
		return text[:at] + text[at+1:]
	case 6:
		return text + g.of(" where", " where true and", " true", " where true false", ";", " where not", " where (true", " where nil", " where 1", ` where "a"`, " where a.b == 1",
			" where TRUE", " where true or or false", " where not not true", " where (((true)))", " where 1 == 1 == 1", " where true == true", " where (1) == 1",
			" where (1 + 1) == 2", " where 1 = 1", " where -1 < 1", " where not(true)", " where nottrue", " where\ttrue", " Where true", " where true AND true")
	case 7:
		return strings.Replace(text, "set(", g.of("Set(", "sets(", "set (", "set(target=", "set(value=1, target="), 1)
	case 8:
		return strings.Replace(text, g.pattern(), g.badPattern(), 1)
	case 9:
		return g.of("replace_pattern("+g.target()+", "+g.badPattern()+`, "")`, "set("+g.target()+", IsMatch("+g.read()+", "+g.badPattern()+"))",
			"delete_matching_keys("+g.mapTarget()+", "+g.badPattern()+")")
	case 10:
		return "set(" + g.target() + ", " + g.of("09", "0x1", "0x", "1.5e400", "9223372036854775808", "-9223372036854775808", "1e3", "--1", "- 1", "1.2.3", ".", "0b1", "1_0", "SPAN_KIND_SERVER",
			"STATUS_CODE_ERROR", "SPAN_KIND_NOPE", "NIL", "True", "STATUS_CODE_OK + 1", "[1, ]", "[,]", "[1 2]", "{1: 2}", `{"a" 1}`, `{"a": 1 "b": 2}`, `{"a": 1,, }`, "{,}",
			"()", "(1)", "(1 + 2) * 3", "1 + 2 * 3", "10 / 4", "10 / 0", "10.0 / 0", "1 - - 1", `"a" + "b"`, `("a")`, "(true)", "nil + 1", "7 / 2.0", "-7 / 2", "1 -1", "2 *3",
			"1.5 + 1", g.badText(), "Len", "Len()", "Len(1, 2)", "len(\"a\")", "Substring(\"abc\", 0)", "Concat(\"a\", \"b\")", "Concat([], \"\")", "SHA256(1)", "Split(1, 2)",
			"Int([])", "Int(nil)", "String(nil)", "ConvertCase(\"a\", \"x\")", "ConvertCase(\"a\", nil)", "ParseJSON(1)", "IsMatch(1, 1)", "Substring(length=1, start=0, target=\"abc\")",
			"Substring(\"abc\", length=1, start=0)", "Substring(target=\"abc\", 0, 1)", "Len(target=\"a\")", "Len(Target=\"a\")", "Len(nope=\"a\")", "Len(\"a\")[0]", "Split(\"a b\", \" \")[\"a\"]", "{\"a\": {\"b\": 7}}[\"a\"]", "[1, 2][0]") + ")"
	}
	return g.of("keep_keys("+g.mapTarget()+", "+g.of("nil", `"a"`, "[1]", "[nil]", "[\"a\", 1]")+")", "limit("+g.mapTarget()+", "+g.of("1.5", `"1"`, "1, [1]", "1, nil", `1, ["a", "b"]`, "1", "1 + 1, []")+", [])",
		"truncate_all("+g.mapTarget()+", "+g.of("1.5", `"5"`, "nil", "5, 1", "5, nil", "5, true, 3, 4", "2 + 3", "+5")+")", "merge_maps("+g.mapTarget()+", "+g.of(`{"a": 1}`, `1, "insert"`, `{}, "x"`, `{}, nil`, `nil, "upsert"`, `"a", "upsert"`, `[], "insert"`)+")",
		"delete_key("+g.mapTarget()+", "+g.of("1", "nil", `"a", "b"`, "true")+")", "set("+g.of("1", `"a"`, "nil", "Len(\"a\")", "("+g.target()+")", "-"+g.target())+", 1)", "set("+g.target()+")", "set("+g.target()+", 1, 2)",
		"replace_all_patterns("+g.mapTarget()+`, "nope", "a", "b")`, "replace_all_patterns("+g.mapTarget()+`, "value", "a", 1)`, "replace_pattern("+g.target()+`, "a", 1)`, "replace_pattern("+g.target()+`, 1, "a")`,
		"delete_key("+g.context+`.name, "a")`, "merge_maps("+g.context+`.name, {}, "insert")`, "truncate_all("+g.context+`.name, 5)`)
}

// statements returns one statement of a configuration, or sometimes several.
func (g *generator) statements() []string {
	list := []string{g.statement()}
	switch {
	case g.chance(9):
		list[0] = g.wrong(list[0])
		for g.context == "scope" && (strings.Contains(list[0], "SPAN_KIND") || strings.Contains(list[0], "STATUS_CODE")) {
			list[0] = g.wrong(g.statement())
		}
	case g.chance(8):
		list = append(list, g.statement())
	case g.chance(3):
		list = []string{"set(" + g.context + `.cache["c"], ` + g.value() + ")", "set(" + g.target() + ", " + g.context + `.cache["c"])`}
	}
	return list
}

// transform returns a configuration of the transform processor.
func (g *generator) transform(key string) string {
	config := map[string]any{}
	list := g.statements()
	if g.chance(50) {
		config["error_mode"] = "propagate"
	} else if g.chance(30) {
		config["error_mode"] = g.of("silent", "ignore")
	}
	group := map[string]any{"statements": list}
	bare := false
	if g.context == "profilesample" {
		group["context"] = g.context
	} else if g.chance(20) {
		group["context"] = g.context
		bare = g.chance(60)
	}
	if g.chance(8) {
		conditions := []string{g.condition()}
		if g.chance(40) {
			conditions = append(conditions, g.condition())
		}
		group["conditions"] = conditions
		if group["context"] == nil && g.chance(50) {
			group["context"] = g.context
		}
	}
	if g.chance(4) {
		group["error_mode"] = g.of("propagate", "ignore", "silent")
	}
	if bare {
		for i := range list {
			list[i] = strings.ReplaceAll(list[i], g.context+".", "")
		}
	}
	if len(group) == 1 {
		config[key] = list
	} else {
		config[key] = []any{group}
	}
	return encode(config)
}

// conditions returns a configuration of the filter processor.
func (g *generator) conditions(key, section string) string {
	config := map[string]any{}
	list := []string{g.condition()}
	if g.chance(8) {
		list[0] = g.wrong(list[0])
	} else if g.chance(20) {
		list = append(list, g.condition())
	}
	if g.chance(50) {
		config["error_mode"] = g.of("propagate", "propagate", "silent", "ignore")
	}
	if g.chance(50) {
		config[key] = list
	} else {
		for i := range list {
			if g.chance(50) {
				list[i] = strings.ReplaceAll(list[i], g.context+".", "")
			}
		}
		config[section] = map[string]any{g.context: list}
	}
	return encode(config)
}

func encode(config map[string]any) string {
	var text strings.Builder
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(config); err != nil {
		panic(err)
	}
	return strings.TrimSpace(text.String())
}

// generate prints configurations, one a line, each after the kind of its processor and a tab.
func generate(seed uint64, count int) []string {
	var lines []string
	seen := map[string]bool{}
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0))}
	for len(lines) < count {
		kind, config := "", ""
		g.depth = 0
		g.filter = g.chance(18)
		n := g.IntN(100)
		switch {
		case g.filter && n < 75:
			g.context = g.of("span", "span", "span", "resource")
			kind, config = "filter traces", g.conditions("trace_conditions", "traces")
		case g.filter:
			g.context = g.of("profile", "profile", "resource")
			kind, config = "filter profiles", g.conditions("profile_conditions", "profiles")
		case n < 76:
			g.context = g.of("span", "span", "span", "span", "spanevent", "resource", "scope")
			kind, config = "transform traces", g.transform("trace_statements")
		default:
			g.context = g.of("profile", "profilesample", "profilesample", "resource", "scope")
			kind, config = "transform profiles", g.transform("profile_statements")
		}
		if line := fmt.Sprintf("%s\t%s", kind, config); !seen[line] {
			seen[line] = true
			lines = append(lines, line)
		}
	}
	return lines
}
