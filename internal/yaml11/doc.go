// Package yaml11 reads and writes YAML 1.1 as PyYAML does, which task files and
// configurations are written for: yes and on are booleans, 010 is eight, 22:30 is 1350,
// 1e3 is a text, 2024-01-31 is a date. Nothing else in the tree reads YAML.
//
// # Reading
//
// A [Source] is a text with a name. [Source.Read] gives its documents as trees of
// [Node], each with its place in the text. Aliases are expanded, merge keys merged,
// scalars resolved. What is not YAML, a key that stands twice, a text beyond the bounds
// ([MaxBytes], [MaxDepth], [MaxValues]: far beyond what people write, low enough that a
// hostile text costs little) is an [Error] in words of this package, with a place and,
// where there is one, a hint.
//
// The scanner is that of go.yaml.in/yaml: the one that reads these files in other
// implementations (it takes {A100:1} for a key "A100:1", which younger parsers do
// not). What a scalar means is decided here, in scalar.go.
//
// # Values
//
// The value of a scalar is nil, bool, int, *big.Int, float64, string or [Date]. Callers
// that have no use for dates and numbers beyond an int, as configurations, read with
// [Source.Simple]: dates stay texts then, and large numbers are floats. [Of] makes nodes
// of Go values, [Node.Any] Go values of nodes. What a document may hold is described, and
// checked, in package schema.
//
// # Writing
//
// [Writer] writes trees so that readers of YAML 1.1 and 1.2 take them for the same:
// what either would misread is quoted. Comments, blank lines and short collections in
// one line stay where a node was read with them. [Set] and [Unset] change one value in a
// text and leave every other line as it is.
package yaml11
