package fakehttp

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// GRPC translates unary calls of gRPC over HTTP/2 (grpc/grpc, doc/PROTOCOL-HTTP2.md)
// into POSTs of JSON with the same path, and their answers back: fields have the names
// of their definitions, numbers of 64 bits are strings, enums are names or numbers. What
// is refused has a body of google.rpc.Status, whatever its HTTP status above 299.
type GRPC struct {
	files *protoregistry.Files
	types *dynamicpb.Types
}

const rpcStatus = "package google.rpc; message Status { int32 code = 1; string message = 2; repeated google.protobuf.Any details = 3; }"

// NewGRPC reads definitions in the syntax of Protocol Buffers version 3 without comments,
// options, imports and reserved fields. A package lasts until the next one, and names only
// what it or a package before it defines, google.rpc.Status or google.protobuf's Any and
// Timestamp.
func NewGRPC(definitions string) *GRPC {
	g := &GRPC{files: &protoregistry.Files{}}
	deps := []string{}
	add := func(fd protoreflect.FileDescriptor) {
		must(g.files.RegisterFile(fd))
		deps = append(deps, fd.Path())
	}
	add(anypb.File_google_protobuf_any_proto)
	add(timestamppb.File_google_protobuf_timestamp_proto)
	p := &parser{words: regexp.MustCompile(`[\w.]+|[{}=;(),<>]`).FindAllString(rpcStatus+definitions, -1)}
	for len(p.words) > 0 {
		fd, err := protodesc.NewFile(p.file(deps), g.files)
		must(err)
		add(fd)
	}
	g.types = dynamicpb.NewTypes(g.files)
	return g
}

// Message makes a message of that full name from its JSON.
func (g *GRPC) Message(name string, text []byte) (proto.Message, error) {
	d, err := g.files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
	return m, protojson.UnmarshalOptions{Resolver: g.types}.Unmarshal(text, m)
}

// JSON is the JSON of a message in its binary form.
func (g *GRPC) JSON(name string, binary []byte) ([]byte, error) {
	d, err := g.files.FindDescriptorByName(protoreflect.FullName(name))
	if err != nil {
		return nil, err
	}
	m := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
	if err := (proto.UnmarshalOptions{Resolver: g.types}).Unmarshal(binary, m); err != nil {
		return nil, err
	}
	return protojson.MarshalOptions{UseProtoNames: true, Resolver: g.types}.Marshal(m)
}

// method is what a path such as /nebius.compute.v1.DiskService/Get calls.
func (g *GRPC) method(path string) (protoreflect.MethodDescriptor, bool) {
	d, err := g.files.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(path, "/"), "/", ".")))
	m, ok := d.(protoreflect.MethodDescriptor)
	return m, ok && err == nil
}

func (g *GRPC) serve(next http.Handler, w http.ResponseWriter, r *http.Request) {
	m, ok := g.method(r.URL.Path)
	if !ok {
		g.refuse(w, Dict{"code": 12, "message": "unknown method " + r.URL.Path})
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if r.Method != http.MethodPost || len(body) < 5 || body[0] != 0 || int(binary.BigEndian.Uint32(body[1:])) != len(body)-5 {
		g.refuse(w, Dict{"code": 13, "message": "not one message without compression"})
		return
	}
	text, err := g.JSON(string(m.Input().FullName()), body[5:])
	if err != nil {
		g.refuse(w, Dict{"code": 13, "message": err.Error()})
		return
	}
	in := r.Clone(r.Context())
	in.Body = io.NopCloser(bytes.NewReader(text))
	answer := httptest.NewRecorder()
	next.ServeHTTP(answer, in)
	if answer.Code > 299 {
		g.refuse(w, answer.Body)
		return
	}
	if answer.Body.Len() == 0 {
		answer.Body.WriteString("{}")
	}
	out, err := g.Message(string(m.Output().FullName()), answer.Body.Bytes())
	must(err) // the fake's own words
	raw, err := proto.Marshal(out)
	must(err)
	w.Header().Set("Content-Type", "application/grpc")
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(raw))), raw...))
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
}

// refuse answers with headers only, as servers do that have nothing else to say. status
// is a google.rpc.Status or its JSON.
func (g *GRPC) refuse(w http.ResponseWriter, status any) {
	text, ok := status.(*bytes.Buffer)
	if !ok {
		text = bytes.NewBuffer(mustJSON(status))
	}
	m, err := g.Message("google.rpc.Status", text.Bytes())
	must(err)
	raw, err := proto.Marshal(m)
	must(err)
	fields := m.ProtoReflect().Descriptor().Fields()
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set("Grpc-Status", strconv.FormatInt(m.ProtoReflect().Get(fields.ByName("code")).Int(), 10))
	w.Header().Set("Grpc-Message", url.PathEscape(m.ProtoReflect().Get(fields.ByName("message")).String()))
	w.Header().Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(raw))
	w.WriteHeader(http.StatusOK)
}

// parser reads definitions, whose syntax is the fake's own fault.
type parser struct{ words []string }

func (p *parser) next() string {
	w := p.words[0]
	p.words = p.words[1:]
	return w
}

func (p *parser) want(all ...string) {
	for _, w := range all {
		if got := p.next(); got != w {
			panic(fmt.Sprintf("%q instead of %q before %q", got, w, p.words[:min(9, len(p.words))]))
		}
	}
}

func (p *parser) number() *int32 {
	p.want("=")
	n, err := strconv.Atoi(p.next())
	must(err)
	p.want(";")
	return proto.Int32(int32(n))
}

func (p *parser) file(deps []string) *descriptorpb.FileDescriptorProto {
	p.want("package")
	name := p.next()
	p.want(";")
	fd := &descriptorpb.FileDescriptorProto{Name: proto.String(name + ".proto"), Package: &name, Dependency: deps, Syntax: proto.String("proto3")}
	for len(p.words) > 0 && p.words[0] != "package" {
		switch p.next() {
		case "message":
			fd.MessageType = append(fd.MessageType, p.message())
		case "enum":
			fd.EnumType = append(fd.EnumType, p.enum())
		default:
			fd.Service = append(fd.Service, p.service())
		}
	}
	return fd
}

func (p *parser) enum() *descriptorpb.EnumDescriptorProto {
	e := &descriptorpb.EnumDescriptorProto{Name: proto.String(p.next())}
	for p.want("{"); p.words[0] != "}"; {
		name := p.next()
		e.Value = append(e.Value, &descriptorpb.EnumValueDescriptorProto{Name: &name, Number: p.number()})
	}
	p.want("}")
	return e
}

func (p *parser) service() *descriptorpb.ServiceDescriptorProto {
	s := &descriptorpb.ServiceDescriptorProto{Name: proto.String(p.next())}
	for p.want("{"); p.words[0] == "rpc"; {
		p.want("rpc")
		m := &descriptorpb.MethodDescriptorProto{Name: proto.String(p.next())}
		p.want("(")
		m.InputType = proto.String(p.next())
		p.want(")", "returns", "(")
		m.OutputType = proto.String(p.next())
		p.want(")", ";")
		s.Method = append(s.Method, m)
	}
	p.want("}")
	return s
}

func (p *parser) message() *descriptorpb.DescriptorProto {
	m := &descriptorpb.DescriptorProto{Name: proto.String(p.next())}
	p.want("{")
	p.fields(m, nil)
	return m
}

// fields are those of a message, or of one of its oneofs.
func (p *parser) fields(m *descriptorpb.DescriptorProto, oneof *int32) {
	for p.words[0] != "}" {
		f := &descriptorpb.FieldDescriptorProto{Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(), OneofIndex: oneof}
		switch word := p.next(); word {
		case "message":
			m.NestedType = append(m.NestedType, p.message())
			continue
		case "enum":
			m.EnumType = append(m.EnumType, p.enum())
			continue
		case "oneof":
			m.OneofDecl = append(m.OneofDecl, &descriptorpb.OneofDescriptorProto{Name: proto.String(p.next())})
			p.want("{")
			p.fields(m, proto.Int32(int32(len(m.OneofDecl)-1)))
			continue
		case "map":
			p.want("<", "string", ",")
			value := &descriptorpb.FieldDescriptorProto{Name: proto.String("value"), Number: proto.Int32(2), Label: f.Label}
			typed(value, p.next())
			p.want(">")
			key := &descriptorpb.FieldDescriptorProto{Name: proto.String("key"), Number: proto.Int32(1), Label: f.Label}
			typed(key, "string")
			entry := strings.ToUpper(p.words[0][:1]) + camel(p.words[0][1:]) + "Entry"
			m.NestedType = append(m.NestedType, &descriptorpb.DescriptorProto{
				Name: &entry, Field: []*descriptorpb.FieldDescriptorProto{key, value}, Options: &descriptorpb.MessageOptions{MapEntry: proto.Bool(true)},
			})
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			typed(f, m.GetName()+"."+entry)
		case "repeated":
			f.Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
			typed(f, p.next())
		default:
			typed(f, word)
		}
		f.Name = proto.String(p.next())
		f.JsonName = proto.String(camel(f.GetName()))
		f.Number = p.number()
		m.Field = append(m.Field, f)
	}
	p.want("}")
}

var scalars = map[string]descriptorpb.FieldDescriptorProto_Type{
	"string": descriptorpb.FieldDescriptorProto_TYPE_STRING, "bool": descriptorpb.FieldDescriptorProto_TYPE_BOOL, "bytes": descriptorpb.FieldDescriptorProto_TYPE_BYTES,
	"int32": descriptorpb.FieldDescriptorProto_TYPE_INT32, "int64": descriptorpb.FieldDescriptorProto_TYPE_INT64, "uint32": descriptorpb.FieldDescriptorProto_TYPE_UINT32,
	"double": descriptorpb.FieldDescriptorProto_TYPE_DOUBLE,
}

func typed(f *descriptorpb.FieldDescriptorProto, name string) {
	if t, ok := scalars[name]; ok {
		f.Type = &t
	} else {
		f.TypeName = &name
	}
}

func camel(name string) string {
	parts := strings.Split(name, "_")
	for i, s := range parts[1:] {
		parts[i+1] = strings.ToUpper(s[:1]) + s[1:]
	}
	return strings.Join(parts, "")
}
