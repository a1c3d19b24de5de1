package reference

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skypilot-go/sky/internal/config"
)

// configPage is the reference of the configuration: one section a top-level
// key.
func configPage(docs []config.Doc) []byte {
	var p page
	p.generated("Configuration")
	p.paragraph("Every key of the configuration. It is read from, weakest first:")
	p.table([]string{"Layer", "Where", "Instead, if the variable is set"}, [][]string{
		{string(config.LayerServer), "`~/.sky/config.yaml` of the API server's machine", code(config.EnvGlobalConfig)},
		{string(config.LayerUser), "`~/.sky/config.yaml`", code(config.EnvGlobalConfig)},
		{string(config.LayerProject), "`.sky.yaml` in the current folder", code(config.EnvProjectConfig)},
		{string(config.LayerTask), "`config` of the task file; only keys marked *task*", ""},
		{string(config.LayerCommandLine), "`--config FILE`, `--config KEY=VALUE`, `--workspace NAME`", ""},
		{string(config.LayerEnvironment), fmt.Sprintf("%s and %s, for the keys of `api_server`", code(config.EnvEndpoint), code(config.EnvToken)), ""},
	})
	p.paragraph("Sections merge key by key; lists and values replace what an earlier layer says. Keys marked *server* are decided by the\n" +
		"API server alone; a client's value is ignored, with a warning. On a server where people log in, so are the values of keys marked *administrators*, unless\n" +
		"an administrator asks.")
	p.paragraph("`sky config show` tells what holds and where it was written, `sky config check` what is wrong, `sky config set KEY=VALUE`\n" +
		"changes a file. The same as JSON Schema, for editors: [config.schema.json](config.schema.json).")
	p.paragraph("In paths, `<name>` stands for any name, `<cloud>` for the clouds that the section lists, `[]` for each element of a list.")

	for _, section := range sections(fold(docs)) {
		top := section[0]
		p.heading(2, top.Path)
		p.paragraph(joined(prose(top.Text), notes(top)))
		if top.Default != nil {
			p.paragraph("Default: " + code(value(top.Default)) + ".")
		}
		var rows [][]string
		for _, d := range section[1:] {
			d.Task, d.ServerOnly = d.Task && !top.Task, d.ServerOnly && !top.ServerOnly // told once
			if top.Admins != "" {
				d.Admins = ""
			}
			rows = append(rows, []string{
				code(strings.TrimPrefix(d.Path, top.Path+".")), prose(d.Kinds.String()), code(value(d.Default)), joined(prose(d.Text), notes(d)),
			})
		}
		p.table([]string{"Key", "Value", "Default", "Meaning"}, rows)
	}
	p.variables()
	return []byte(p.String())
}

// notes are what the text of a key does not say.
func notes(d config.Doc) string {
	var out []string
	if len(d.Values) > 0 {
		out = append(out, "One of "+codes(d.Values)+".")
	}
	if d.Deprecated != "" {
		out = append(out, "Deprecated: "+prose(d.Deprecated)+".")
	}
	if d.Inert != "" {
		out = append(out, "Changes nothing: "+prose(d.Inert)+".")
	}
	if d.Task {
		out = append(out, "*task*")
	}
	switch {
	case d.ServerOnly:
		out = append(out, "*server*")
	case d.Admins != "":
		out = append(out, "*administrators*")
	}
	return strings.Join(out, " ")
}

func joined(parts ...string) string { return strings.TrimSpace(strings.Join(parts, " ")) }

// value writes a default as YAML on one line.
func value(v any) string {
	switch x := v.(type) {
	case nil:
		return ""
	case string:
		return x
	}
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(text)
}

// sections splits the keys at those of the top level.
func sections(docs []config.Doc) [][]config.Doc {
	var out [][]config.Doc
	for _, d := range docs {
		if !strings.Contains(d.Path, ".") {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], d)
	}
	return out
}

// variables lists the switches of the environment.
func (p *page) variables() {
	p.heading(2, "Environment variables")
	p.paragraph("Switches are on for `true` and `1`, in any case.")
	var rows [][]string
	for _, s := range config.Switches {
		standard := "off"
		if s.Default {
			standard = "on"
		}
		rows = append(rows, []string{code(s.Name), standard, prose(s.Doc)})
	}
	rows = append(rows, []string{code("SKYPILOT_TIMELINE_FILE_PATH"), "", "The file of `--timeline`: where the time of a command goes, for Perfetto and chrome://tracing."})
	p.table([]string{"Variable", "Default", "Meaning"}, rows)
}
