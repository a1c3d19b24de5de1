//go:build !linux

package proc

import "errors"

// NewCgroup fails with errors.ErrUnsupported: only Linux has cgroups.
func NewCgroup(string) (string, error) { return "", errors.ErrUnsupported }

// InCgroup returns nothing.
func InCgroup(string) []int { return nil }

// RemoveCgroup does nothing.
func RemoveCgroup(string) {}
