package config

// reading reads what an edge with all modules does. It is for tests of what users see: the pages, the
// schema, and what is wrong with a configuration.
var reading Parser

// Use has those tests read with modules, which this package does not know: modules_test.go names
// them.
func Use(modules []Module) { reading.Modules = modules }
