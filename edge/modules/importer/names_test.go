package importer

import (
	"sluice/edge/modules/importer/limit"
	"sluice/edge/modules/importer/nginx"
)

// The tests of all formats are in one table, which has these notes.
var namesClient = limit.NamesClient

const requestURI = nginx.RequestURI
