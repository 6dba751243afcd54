//go:build !linux

// Package namespace runs programs in a network of their own, which Linux has alone.
package namespace

import (
	"context"
	"errors"
	"runtime"
)

var errLinuxOnly = errors.New("a network of its own: Linux has that, and " + runtime.GOOS +
	" has not")

// Inside reports whether this process was started by Again.
func Inside() bool { return false }

// Up gives this process's network its addresses.
func Up() error { return errLinuxOnly }

// Again runs this program anew in a network of its own.
func Again(context.Context) error { return errLinuxOnly }
