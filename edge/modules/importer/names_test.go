package importer

import (
	"sluice/edge/modules/importer/limit"
	"sluice/edge/modules/importer/nginx"
)

var namesClient = limit.NamesClient

const requestURI = nginx.RequestURI
