package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	bootstrap "github.com/envoyproxy/go-control-plane/envoy/config/bootstrap/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ext_authz/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/ratelimit/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/http/router/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/filters/network/http_connection_manager/v3"
	_ "github.com/envoyproxy/go-control-plane/envoy/extensions/upstreams/http/v3"
	"github.com/goccy/go-yaml"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/anypb"
)

// The configurations of Envoy are ones to Envoy's own definitions: every field there, of every filter, with a value that it may have.
func TestEnvoyConfigurations(t *testing.T) {
	files, err := filepath.Glob("../../deploy/envoy/*.yaml")
	if err != nil || len(files) != 2 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		must(t, err)
		if _, err := readEnvoy(text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
	for _, wrong := range []string{"static_resource: {}", "static_resources: {clusters: [{name: a, connect_timeout: 0s}]}",
		`static_resources: {clusters: [{name: a, transport_socket: {name: b, typed_config: {"@type": "type.googleapis.com/envoy.extensions.filters.http.ratelimit.v3.RateLimit"}}}]}`} {
		if _, err := readEnvoy([]byte(wrong)); err == nil {
			t.Errorf("%s is taken", wrong)
		}
	}
}

func readEnvoy(text []byte) (*bootstrap.Bootstrap, error) {
	var fields any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return nil, err
	}
	asJSON, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	c := new(bootstrap.Bootstrap)
	if err := protojson.Unmarshal(asJSON, c); err != nil {
		return nil, err
	}
	return c, validate(c)
}

// validate asks a message, and those that are packed in it, what is wrong with them.
func validate(m proto.Message) (err error) {
	if v, ok := m.(interface{ ValidateAll() error }); ok {
		err = v.ValidateAll()
	}
	if packed, ok := m.(*anypb.Any); ok && err == nil {
		inner, unpacked := packed.UnmarshalNew()
		if unpacked != nil {
			return unpacked
		}
		return validate(inner)
	}
	one := func(v protoreflect.Value) {
		if err == nil {
			err = validate(v.Message().Interface())
		}
	}
	m.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap() && f.MapValue().Message() != nil:
			v.Map().Range(func(_ protoreflect.MapKey, v protoreflect.Value) bool { one(v); return true })
		case f.IsMap():
		case f.IsList() && f.Message() != nil:
			for i := range v.List().Len() {
				one(v.List().Get(i))
			}
		case f.Message() != nil:
			one(v)
		}
		return err == nil
	})
	return err
}
