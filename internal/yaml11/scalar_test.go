package yaml11

import "testing"

// The middle and right columns are what Python's YAML 1.1 reader makes of the
// scalar: str() and repr() of the value.
var scalarTable = []struct{ text, str, repr string }{
	{"yes", "True", "True"},
	{"no", "False", "False"},
	{"on", "True", "True"},
	{"off", "False", "False"},
	{"true", "True", "True"},
	{"false", "False", "False"},
	{"True", "True", "True"},
	{"TRUE", "True", "True"},
	{"Yes", "True", "True"},
	{"ON", "True", "True"},
	{"oN", "oN", "'oN'"},
	{"y", "y", "'y'"},
	{"n", "n", "'n'"},
	{"Y", "Y", "'Y'"},
	{"N", "N", "'N'"},
	{"tRue", "tRue", "'tRue'"},
	{"~", "None", "None"},
	{"null", "None", "None"},
	{"Null", "None", "None"},
	{"NULL", "None", "None"},
	{"nUll", "nUll", "'nUll'"},
	{"1", "1", "1"},
	{"-1", "-1", "-1"},
	{"+1", "1", "1"},
	{"0", "0", "0"},
	{"00", "0", "0"},
	{"010", "8", "8"},
	{"08", "08", "'08'"},
	{"09", "09", "'09'"},
	{"0o10", "0o10", "'0o10'"},
	{"0x10", "16", "16"},
	{"0xFF", "255", "255"},
	{"-0x1f", "-31", "-31"},
	{"0b101", "5", "5"},
	{"0b", "0b", "'0b'"},
	{"1_000", "1000", "1000"},
	{"1_0.5_0", "10.5", "10.5"},
	{"1e3", "1e3", "'1e3'"},
	{"1e+3", "1e+3", "'1e+3'"},
	{"1.0e3", "1.0e3", "'1.0e3'"},
	{"1.0e+3", "1000.0", "1000.0"},
	{"1.0e-3", "0.001", "0.001"},
	{"1.5E+10", "15000000000.0", "15000000000.0"},
	{"1.", "1.0", "1.0"},
	{".5", "0.5", "0.5"},
	{"-.5", "-.5", "'-.5'"},
	{"+.5", "+.5", "'+.5'"},
	{".5e+3", "500.0", "500.0"},
	{".", ".", "'.'"},
	{"..", "..", "'..'"},
	{"1.50", "1.5", "1.5"},
	{"1.0", "1.0", "1.0"},
	{"100000000000000000000", "100000000000000000000", "100000000000000000000"},
	{"1e16", "1e16", "'1e16'"},
	{"1.0e+16", "1e+16", "1e+16"},
	{"1.0e+22", "1e+22", "1e+22"},
	{"123456789012345678.0", "1.2345678901234568e+17", "1.2345678901234568e+17"},
	{"0.0001", "0.0001", "0.0001"},
	{"0.00001", "1e-05", "1e-05"},
	{".inf", "inf", "inf"},
	{"-.inf", "-inf", "-inf"},
	{"+.inf", "inf", "inf"},
	{".INF", "inf", "inf"},
	{".Inf", "inf", "inf"},
	{".nan", "nan", "nan"},
	{".NaN", "nan", "nan"},
	{".NAN", "nan", "nan"},
	{"22:30", "1350", "1350"},
	{"22:80", "22:80", "'22:80'"},
	{"1:2:3", "3723", "3723"},
	{"-1:30", "-90", "-90"},
	{"1:30.5", "90.5", "90.5"},
	{"190:20:30", "685230", "685230"},
	{"0:30", "0:30", "'0:30'"},
	{"2020-01-01", "2020-01-01", "datetime.date(2020, 1, 1)"},
	{"2020-1-1", "2020-1-1", "'2020-1-1'"},
	{"2020-01-01T10:00:00", "2020-01-01 10:00:00", "datetime.datetime(2020, 1, 1, 10, 0)"},
	{"2020-01-01T10:00:00Z", "2020-01-01 10:00:00+00:00", "datetime.datetime(2020, 1, 1, 10, 0, tzinfo=datetime.timezone.utc)"},
	{"2020-01-01T10:00:00+05:30", "2020-01-01 10:00:00+05:30", "datetime.datetime(2020, 1, 1, 10, 0, tzinfo=datetime.timezone(datetime.timedelta(seconds=19800)))"},
	{"2020-01-01T10:00:00-05:00", "2020-01-01 10:00:00-05:00", "datetime.datetime(2020, 1, 1, 10, 0, tzinfo=datetime.timezone(datetime.timedelta(days=-1, seconds=68400)))"},
	{"2020-01-01T10:00:00.5Z", "2020-01-01 10:00:00.500000+00:00", "datetime.datetime(2020, 1, 1, 10, 0, 0, 500000, tzinfo=datetime.timezone.utc)"},
	{"2020-01-01T10:00", "2020-01-01T10:00", "'2020-01-01T10:00'"},
	{"1,000", "1,000", "'1,000'"},
	{"1-2", "1-2", "'1-2'"},
	{"a100", "a100", "'a100'"},
	{"1a", "1a", "'1a'"},
	{"--", "--", "'--'"},
	{"+", "+", "'+'"},
	{"0_", "0", "0"},
	{"0_7", "7", "7"},
	{"_1", "_1", "'_1'"},
	{"1__0", "10", "10"},
	{"0x", "0x", "'0x'"},
	{"0x_1", "1", "1"},
	{"1_", "1", "1"},
	{"9223372036854775808", "9223372036854775808", "9223372036854775808"},
	{"-9223372036854775808", "-9223372036854775808", "-9223372036854775808"},
	{"9-9", "9-9", "'9-9'"},
	{"0.1.2", "0.1.2", "'0.1.2'"},
	{"1.2.3.4", "1.2.3.4", "'1.2.3.4'"},
	{"3.14159", "3.14159", "3.14159"},
	{"-0", "0", "0"},
	{"-0.0", "-0.0", "-0.0"},
	{"0.0", "0.0", "0.0"},
	{"1.7976931348623157e+309", "inf", "inf"},
	{"1e400", "1e400", "'1e400'"},
	{"<<x", "<<x", "'<<x'"},
	{"8080:80", "8080:80", "'8080:80'"},
	{"60:60", "60:60", "'60:60'"},
	{"1:60", "1:60", "'1:60'"},
	{"59:59", "3599", "3599"},
	{"12345678901234567890.5", "1.2345678901234567e+19", "1.2345678901234567e+19"},
	{"1.e+5", "100000.0", "100000.0"},
	{"0777", "511", "511"},
	{"0888", "0888", "'0888'"},
	{"07_7", "63", "63"},
	{"+010", "8", "8"},
	{"-010", "-8", "-8"},
	{"+0x1", "1", "1"},
	{"~x", "~x", "'~x'"},
	{"nulls", "nulls", "'nulls'"},
	{"on2", "on2", "'on2'"},
	{"12e03", "12e03", "'12e03'"},
	{"1.2e03", "1.2e03", "'1.2e03'"},
	{"685_230.15", "685230.15", "685230.15"},
	{"190:20:30.15", "685230.15", "685230.15"},
	{"2020-01-01 10:00:00", "2020-01-01 10:00:00", "datetime.datetime(2020, 1, 1, 10, 0)"},
	{"2020-01-01 10:00:00 Z", "2020-01-01 10:00:00+00:00", "datetime.datetime(2020, 1, 1, 10, 0, tzinfo=datetime.timezone.utc)"},
	{"2020-01-01 10:00:00.123456 +1", "2020-01-01 10:00:00.123456+01:00", "datetime.datetime(2020, 1, 1, 10, 0, 0, 123456, tzinfo=datetime.timezone(datetime.timedelta(seconds=3600)))"},
	{"2020-01-01t1:00:00", "2020-01-01 01:00:00", "datetime.datetime(2020, 1, 1, 1, 0)"},
	{"a b", "a b", "'a b'"},
	{"2001-12-14t21:59:43.10-05:00", "2001-12-14 21:59:43.100000-05:00", "datetime.datetime(2001, 12, 14, 21, 59, 43, 100000, tzinfo=datetime.timezone(datetime.timedelta(days=-1, seconds=68400)))"},
}

func TestScalarsAreReadAsYAML11(t *testing.T) {
	for _, c := range scalarTable {
		n := &Node{Text: c.text, Value: Resolve(c.text)}
		if got := PyStr(n); got != c.str {
			t.Errorf("%s: str is %s, want %s", c.text, got, c.str)
		}
		if got := PyRepr(n); got != c.repr {
			t.Errorf("%s: repr is %s, want %s", c.text, got, c.repr)
		}
	}
}

func TestTextIsWrittenSoThatItStaysText(t *testing.T) {
	for _, c := range scalarTable {
		for _, s := range []string{c.text, c.text + "\n", " " + c.text, c.text + ":", c.text + " # x", "- " + c.text} {
			var w Writer
			w.Document(NewMap().Append("x", NewScalar(s)).Append(s, NewScalar("y")))
			docs, err := (&Source{Text: w.String()}).Read()
			if err != nil {
				t.Fatalf("%q: %v", w.String(), err)
			}
			if got := docs[0].Lookup("x"); got.Value != s {
				t.Errorf("%q was written as %q and read as %v", s, w.String(), got.Value)
			}
			if got := docs[0].Entries[1].Key; got.Value != s {
				t.Errorf("key %q was written as %q and read as %v", s, w.String(), got.Value)
			}
		}
	}
}

func TestExplicitTags(t *testing.T) {
	for in, want := range map[string]string{
		"!!str 1": "'1'", "!!int '1'": "1", "!!float 1": "1.0", "!!bool yes": "True", "!!str yes": "'yes'", "!!null ''": "None",
	} {
		docs, err := (&Source{Text: "x: " + in}).Read()
		if err != nil {
			t.Errorf("%s: %v", in, err)
			continue
		}
		if got := PyRepr(docs[0].Lookup("x")); got != want {
			t.Errorf("%s is %s, want %s", in, got, want)
		}
	}
	for _, in := range []string{"!!int x", "!foo 1", "!!bool 1", "!!binary YQ==", "!!float x"} {
		if _, err := (&Source{Text: "x: " + in}).Read(); err == nil {
			t.Errorf("%s was accepted", in)
		}
	}
}
