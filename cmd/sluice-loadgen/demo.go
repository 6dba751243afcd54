package main

import (
	"github.com/spf13/pflag"
)

func (f *labFlags) demonstrate(flags *pflag.FlagSet) error { return nil }
