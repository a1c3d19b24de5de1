package task

// JSONSchema describes a task document to editors, as JSON Schema draft
// 2020-12. It accepts whatever Parse accepts in a document of one task, and
// refuses most of what Parse refuses.
func JSONSchema() []byte { return language().JSONSchema("sky task", true) }
