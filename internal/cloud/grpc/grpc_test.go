package grpc

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/skypilot-go/sky/internal/cloud/rest"
)

type inner struct {
	Name string `pb:"1"`
}

type all struct {
	Text    string            `pb:"1"`
	Yes     bool              `pb:"2"`
	Small   int32             `pb:"3"`
	Big     int64             `pb:"4"`
	Count   uint32            `pb:"5"`
	Bytes   []byte            `pb:"6"`
	One     inner             `pb:"7"`
	Maybe   *inner            `pb:"8"`
	Many    []inner           `pb:"9"`
	Words   []string          `pb:"10"`
	Ports   []int32           `pb:"11"`
	Labels  map[string]string `pb:"12"`
	At      time.Time         `pb:"13"`
	Ignored string
}

func TestMessagesComeBack(t *testing.T) {
	want := all{"a", true, -3, 1 << 40, 7, []byte{0, 1}, inner{"x"}, &inner{}, []inner{{"m"}, {}}, []string{"", "w"}, []int32{1, 65535}, map[string]string{"k": "v", "e": ""}, time.Unix(1e9, 5).UTC(), ""}
	var got all
	if err := Unmarshal(Marshal(want), &got); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if b := Marshal(&all{Ignored: "x"}); len(b) != 0 {
		t.Errorf("%x", b)
	}
	var less inner // which does not know most of it
	if err := Unmarshal(Marshal(want), &less); err != nil || less.Name != "a" {
		t.Errorf("%+v, %v", less, err)
	}
}

// What the reference implementation writes is read, and the other way round.
func TestTheReferenceAgrees(t *testing.T) {
	at := time.Unix(1234567890, 987).UTC()
	b, err := proto.Marshal(timestamppb.New(at))
	var got struct {
		At time.Time `pb:"1"`
	}
	if err != nil || Unmarshal(append([]byte{1<<3 | 2, byte(len(b))}, b...), &got) != nil || !got.At.Equal(at) {
		t.Errorf("%v, %v", got, err)
	}
	var v structpb.ListValue
	if err := proto.Unmarshal(Marshal(struct {
		Values []struct {
			Text string `pb:"3"`
		} `pb:"1"`
	}{[]struct {
		Text string `pb:"3"`
	}{{"a"}, {"b"}}}), &v); err != nil || len(v.Values) != 2 || v.Values[1].GetStringValue() != "b" {
		t.Errorf("%v, %v", &v, err)
	}
}

func TestBrokenMessages(t *testing.T) {
	for _, b := range [][]byte{{0xff}, {8}, {10, 5, 'a'}, {8, 1}, {0x4a, 2, 10, 9}, {0x5a, 1, 0xff}, {13, 0, 0, 0, 0}} {
		if err := Unmarshal(b, new(all)); err == nil {
			t.Errorf("%x was read", b)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	f.Add(Marshal(all{Text: "a", Maybe: &inner{"b"}, Ports: []int32{1}, Labels: map[string]string{"a": "b"}, At: time.Unix(1, 1)}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m all
		if Unmarshal(b, &m) == nil {
			var again all
			if err := Unmarshal(Marshal(m), &again); err != nil {
				t.Error(err)
			}
		}
	})
}

// serve is a server of gRPC over HTTP/2 without TLS.
func serve(t *testing.T, h http.HandlerFunc) *rest.Client {
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	base := &http.Transport{Protocols: s.Config.Protocols}
	c := rest.New(rest.Options{Cloud: "Test", Endpoint: s.URL, Transport: NewTransport(base, func(details []Any) (string, int) {
		if len(details) > 0 && details[0].Type == "type/Full" {
			return "Full", 409
		}
		return "", 0
	}), TokenHeader: "X-Token", Busy: -1})
	t.Cleanup(c.Close)
	return c
}

func TestCalls(t *testing.T) {
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		message, err := Unframe(body)
		var in inner
		if err != nil || Unmarshal(message, &in) != nil || r.ProtoMajor != 2 || r.Header.Get("Te") != "trailers" || r.Header.Get("Content-Type") != contentType || r.URL.Path != "/pkg.Service/Get" {
			t.Errorf("%v %v %v", r.URL, r.Header, err)
		}
		if in.Name == "proxy" {
			http.Error(w, "busy", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", contentType)
		if in.Name == "silent" {
			return
		}
		if in.Name == "half" {
			w.Header().Set("Trailer:Grpc-Status", "0")
			w.Write(Frame(Marshal(in))[:6])
			return
		}
		if in.Name == "full" {
			w.Header().Set("Grpc-Status", "8")
			w.Header().Set("Grpc-Message", "no%20room")
			w.Header().Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(Marshal(Status{8, "", []Any{{"type/Full", nil}}})))
			return
		}
		if in.Name == "odd" || in.Name == "down" {
			w.Header().Set("Trailer:Grpc-Status", map[string]string{"odd": "77", "down": "14"}[in.Name])
			w.Write(nil)
			return
		}
		w.Write(Frame(Marshal(inner{in.Name + " " + r.Header.Get("X-Token")})))
		w.Header().Set("Trailer:Grpc-Status", "0")
	})
	get := func(name string) (inner, error) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		return Call[inner](ctx, c, "pkg.Service/Get", "once", inner{name})
	}
	if got, err := get("a"); err != nil || got.Name != "a once" {
		t.Errorf("%v, %v", got, err)
	}
	var refused *rest.Error
	if _, err := get("full"); !errors.As(err, &refused) || *refused != (rest.Error{Status: 409, Code: "Full", Message: "no room"}) {
		t.Errorf("%#v", err)
	}
	if _, err := get("odd"); !errors.As(err, &refused) || refused.Code != "CODE_77" {
		t.Errorf("%#v", err)
	}
	var lost *rest.NoAnswerError
	for _, name := range []string{"proxy", "silent", "half", "down"} {
		if _, err := get(name); !errors.As(err, &lost) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
