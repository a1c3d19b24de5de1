package task

import (
	"fmt"
	"strings"
)

func checked(s *schema, grammar func(string) error, pattern string) *schema {
	s.grammar, s.pattern = grammar, strings.TrimSuffix(strings.TrimPrefix(pattern, "^"), "$")
	return s
}

func textGrammar(s *schema, grammar func(string) error, pattern string) *schema {
	s = checked(s, grammar, pattern)
	s.textOnly = true
	return s
}

func checkedNumber(s *schema, grammar func(string) error) *schema {
	s.grammar = grammar
	return s
}

func errOnly(parse func(string) (string, error)) func(string) error {
	return func(s string) error { _, err := parse(s); return err }
}

func checkPositive(s string) error {
	if f, ok := parseDecimal(s); !ok || f <= 0 {
		return fmt.Errorf("should be more than 0, not %s", s)
	}
	return nil
}
