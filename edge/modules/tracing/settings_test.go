package tracing

import (
	"encoding/json"
	"testing"

	"sluice/edge"
	"sluice/edge/config"
)

func reading() config.Parser {
	return config.Parser{Modules: edge.Modules{Module("")}.Config()}
}

// What is wrong with tracing is said where it stands, with what to write instead.
func TestTracingErrors(t *testing.T) {
	const collector = "want http://HOST:PORT, such as http://127.0.0.1:4318, or https://"
	for fields, want := range map[string]string{
		`endpoint: "127.0.0.1:4318"`:                               `f.yaml:1:21: tracing.endpoint: "127.0.0.1:4318" is not the address of a collector: ` + collector,
		`endpoint: "grpc://127.0.0.1:4317"`:                        `f.yaml:1:21: tracing.endpoint: "grpc://127.0.0.1:4317" is not the address of a collector: ` + collector,
		`endpoint: "http://"`:                                      `f.yaml:1:21: tracing.endpoint: "http://" is not the address of a collector: ` + collector,
		`endpoint: "http://c:70000"`:                               `f.yaml:1:21: tracing.endpoint: "http://c:70000" is not the address of a collector: ` + collector,
		`endpoint: "http://u:p@c:4318"`:                            `f.yaml:1:21: tracing.endpoint: the address of a collector has a user in it: give headers in OTEL_EXPORTER_OTLP_HEADERS instead`,
		`endpoint: "http://c:4318/?a=b"`:                           `f.yaml:1:21: tracing.endpoint: "http://c:4318/?a=b": the address of a collector has no query: remove what follows its path`,
		`endpoint: "http://c", sample: 1.5`:                        `f.yaml:1:41: tracing.sample: 1.5 is not a share of the requests: want 0 to 1, such as 0.001 for one in 1000`,
		`endpoint: "http://c", sample: "1%"`:                       `f.yaml:1:41: tracing.sample: 1% is not a share of the requests: want 0 to 1, such as 0.001 for one in 1000`,
		`endpoint: "http://c", sample: .nan`:                       `f.yaml:1:41: tracing.sample: .nan is not a share of the requests: want 0 to 1, such as 0.001 for one in 1000`,
		`endpoint: "http://c", sample: -.inf`:                      `f.yaml:1:41: tracing.sample: -.inf is not a share of the requests: want 0 to 1, such as 0.001 for one in 1000`,
		`endpoint: "http://c", sample: "nan"`:                      `f.yaml:1:41: tracing.sample: nan is not a share of the requests: want 0 to 1, such as 0.001 for one in 1000`,
		`endpoint: "http://c", parent: all`:                        `f.yaml:1:41: tracing.parent: "all" is not possible: want none or trusted`,
		`sample: 0.1`:                                              `f.yaml:1:10: tracing has no endpoint: give that of a collector, such as http://127.0.0.1:4318`,
		`endpoint: "http://c", insecure: true`:                     `f.yaml:1:33: tracing: unknown field insecure: want client_address, endpoint, parent, sample or service_name`,
		`endpoint: none, sample: 0.1`:                              "",
		`endpoint: "https://c/otlp", sample: 1e-3`:                 "",
		`endpoint: "http://[::1]:4318/v1/traces", parent: trusted`: "",
	} {
		_, err := reading().Parse("f.yaml", []byte("tracing: {"+fields+"}\n"))
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s\n got %s\nwant %s", fields, got, want)
		}
	}
}

// Operators see the settings as files have them.
func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"": `{"client_address":false,"endpoint":"none","parent":"none","sample":0.001,"service_name":"sluice"}`,
		"tracing: {endpoint: 'http://c:1', sample: 1, parent: trusted}": `{"client_address":false,"endpoint":"http://c:1","parent":"trusted","sample":1,"service_name":"sluice"}`,
	} {
		c, err := reading().Parse("f", []byte(text+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(config.Shown(c)["tracing"]); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
}
