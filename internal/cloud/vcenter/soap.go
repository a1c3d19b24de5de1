// Package vcenter is a client of VMware vCenter: its SOAP API as far as sky needs it, the
// accounts that people have in a file, and what a vCenter has of hosts. VMware's own client is
// larger than the rest of the program allows.
//
// Source: Broadcom's reference of the vSphere Web Services API, versions 6.7 to 8.0.
package vcenter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/skypilot-go/sky/internal/cloud"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// Element is an element of XML, of a call or of an answer. The API wants the children of
// each element in the order of its schema.
type Element struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Content string     `xml:",chardata"`
	Kids    []*Element `xml:",any"`
}

// Ref names an object of a vCenter.
type Ref struct{ Kind, ID string }

const SchemaInstance = "http://www.w3.org/2001/XMLSchema-instance"

// Elem is an element with children, leaf one with a text, and link one that names an
// object.
func Elem(name string, kids ...*Element) *Element {
	return &Element{XMLName: xml.Name{Local: name}, Kids: kids}
}

func Leaf(name string, text any) *Element {
	return &Element{XMLName: xml.Name{Local: name}, Content: fmt.Sprint(text)}
}

func Link(name string, to Ref) *Element {
	return &Element{XMLName: xml.Name{Local: name}, Content: to.ID, Attrs: []xml.Attr{{Name: xml.Name{Local: "type"}, Value: to.Kind}}}
}

// As is the element as one of a derived type.
func (x *Element) As(kind string) *Element {
	x.Attrs = append(x.Attrs, xml.Attr{Name: xml.Name{Space: SchemaInstance, Local: "type"}, Value: kind})
	return x
}

// Kind is the type that an element says it has, without a prefix.
func (x *Element) Kind() string {
	for _, a := range x.Attrs {
		if a.Name.Space == SchemaInstance && a.Name.Local == "type" {
			return a.Value[strings.LastIndex(a.Value, ":")+1:]
		}
	}
	return ""
}

// Ref is the object that an element names.
func (x *Element) Ref() Ref {
	if x == nil {
		return Ref{}
	}
	to := Ref{ID: x.Content}
	for _, a := range x.Attrs {
		if a.Name.Space == "" && a.Name.Local == "type" {
			to.Kind = a.Value
		}
	}
	return to
}

// At is the first element at a path such as "info.error"; nil: there is none.
func (x *Element) At(path string) *Element {
	for name := range strings.SplitSeq(path, ".") {
		all := x.All(name)
		if len(all) == 0 {
			return nil
		}
		x = all[0]
	}
	return x
}

// All are the children of a name.
func (x *Element) All(name string) (found []*Element) {
	if x == nil {
		return nil
	}
	for _, k := range x.Kids {
		if k.XMLName.Local == name {
			found = append(found, k)
		}
	}
	return found
}

// Text is that of the element at a path; "": its own.
func (x *Element) Text(path string) string {
	if path != "" {
		x = x.At(path)
	}
	if x == nil {
		return ""
	}
	return strings.TrimSpace(x.Content)
}

func (x *Element) write(b *bytes.Buffer) {
	b.WriteString("<" + x.XMLName.Local)
	for _, a := range x.Attrs {
		name := a.Name.Local
		switch a.Name.Space {
		case SchemaInstance:
			name = "xsi:" + name
		case "":
		default: // a declaration of a prefix
			continue
		}
		if name == "xmlns" && x.XMLName.Space != "" {
			continue
		}
		b.WriteString(" " + name + `="`)
		_ = xml.EscapeText(b, []byte(a.Value))
		b.WriteString(`"`)
	}
	b.WriteString(">")
	if len(x.Kids) == 0 {
		_ = xml.EscapeText(b, []byte(x.Content))
	}
	for _, k := range x.Kids {
		k.write(b)
	}
	b.WriteString("</" + x.XMLName.Local + ">")
}

// envelope is a call as it is sent.
func envelope(on Ref, method string, args []*Element) []byte {
	call := Elem(method, append([]*Element{Link("_this", on)}, args...)...)
	call.Attrs = []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: "urn:vim25"}}
	var b bytes.Buffer
	b.WriteString(xml.Header + `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="` + SchemaInstance + `"><soapenv:Body>`)
	call.write(&b)
	b.WriteString("</soapenv:Body></soapenv:Envelope>")
	return b.Bytes()
}

// ReadFault reads a SOAP fault, whose status is that of a broken server.
func ReadFault(status int, header http.Header, body []byte) error {
	var answer Element
	if xml.Unmarshal(body, &answer) == nil {
		if fault := answer.At("Body.Fault"); fault != nil {
			var detail *Element
			if d := fault.At("detail"); d != nil && len(d.Kids) > 0 {
				detail = d.Kids[0]
			}
			return saidBy(detail, fault.Text("faultstring"), status)
		}
	}
	return rest.ReadError(status, header, body)
}

// saidBy is a fault of a call or of a task as an error, with what people need to
// understand it.
func saidBy(fault *Element, message string, status int) *rest.Error {
	out := &rest.Error{Status: status, Message: message}
	if fault == nil {
		return out
	}
	out.Code = cmp.Or(fault.Kind(), strings.TrimSuffix(fault.XMLName.Local, "Fault"))
	for _, about := range []string{"privilegeId", "invalidProperty", "property", "name", "reason"} {
		if text := fault.Text(about); text != "" && !strings.Contains(out.Message, text) {
			out.Message = strings.TrimPrefix(strings.TrimSuffix(out.Message, ".")+" ("+about+": "+text+")", " ")
		}
	}
	return out
}

// Code is the type of the fault that an error is; "": it is none.
func Code(err error) string {
	var fault *rest.Error
	if errors.As(err, &fault) {
		return fault.Code
	}
	return ""
}

// session is one that was logged in to. It ends when nobody uses it for half an hour.
type session struct {
	cookie          string
	version         float64 // of the API
	root, collector Ref
	manager         Ref // of sessions
}

// VCenter makes the calls to one vCenter.
type VCenter struct {
	account
	api  *rest.Client
	turn chan struct{} // of those that log in

	session *session
	refused error // why the last login was refused
	again   time.Time
}

const (
	oldest    = 6.7
	cookie    = "vmware_soap_session"
	lockedOut = time.Minute // vCenter locks users who try wrong passwords, for five minutes as a rule
)

// login returns the session, a new one if it is the old one that has ended.
func (v *VCenter) login(ctx context.Context, ended *session) (*session, error) {
	return v.enter(ctx, func() bool { return v.session != nil && v.session != ended })
}

// Check logs in anew, whatever was refused before.
func (v *VCenter) Check(ctx context.Context) error {
	var old *session
	_, err := v.enter(ctx, func() bool { old, v.refused = v.session, nil; return false })
	if err == nil && old != nil {
		_, _, _ = v.send(ctx, old, old.manager, "Logout") // else it ends by itself
	}
	return err
}

// Logout ends the session, if there is one. A session that is left ends by itself, later.
func (v *VCenter) Logout(ctx context.Context) {
	if v.session != nil {
		_, _, _ = v.send(ctx, v.session, v.session.manager, "Logout")
	}
	v.session = nil
}

// enter returns the session if it is good, and else a new one. Only one caller logs in.
func (v *VCenter) enter(ctx context.Context, good func() bool) (*session, error) {
	select {
	case v.turn <- struct{}{}:
		defer func() { <-v.turn }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if good() {
		return v.session, nil
	}
	if v.refused != nil && time.Now().Before(v.again) {
		return nil, v.refused
	}
	v.session, v.refused = nil, nil
	s, err := v.content(ctx)
	if err != nil {
		return nil, err
	}
	_, header, err := v.send(ctx, s, s.manager, "Login", Leaf("userName", v.User), Leaf("password", v.Password))
	if err != nil {
		if Code(err) == "InvalidLogin" {
			v.refused, v.again = err, time.Now().Add(lockedOut)
		}
		return nil, err
	}
	for _, c := range (&http.Response{Header: header}).Cookies() {
		if c.Name == cookie {
			s.cookie = c.Name + "=" + c.Value
		}
	}
	if s.cookie == "" {
		return nil, &rest.NoAnswerError{Cloud: DisplayName, Err: errors.New("a login has no cookie")}
	}
	v.session = s
	return s, nil
}

// content is what has to be known before a login.
func (v *VCenter) content(ctx context.Context) (*session, error) {
	answer, _, err := v.send(ctx, nil, Ref{"ServiceInstance", "ServiceInstance"}, "RetrieveServiceContent")
	if err != nil {
		return nil, err
	}
	s := &session{root: answer.At("rootFolder").Ref(), collector: answer.At("propertyCollector").Ref(), manager: answer.At("sessionManager").Ref()}
	at := cloud.Place{Cloud: Name, Region: v.Name}
	_, _ = fmt.Sscan(majorMinor(answer.Text("about.apiVersion")), &s.version)
	switch {
	case answer.Text("about.apiType") != "VirtualCenter":
		err = &cloud.InvalidError{Place: at, Err: fmt.Errorf("%s is %q and no vCenter: a single host makes no machines from templates", v.Name, answer.Text("about.fullName"))}
	case s.version < oldest:
		err = &cloud.InvalidError{Place: at, Err: fmt.Errorf("%s is version %s, and sky needs vCenter %v or newer", v.Name, answer.Text("about.apiVersion"), oldest)}
	}
	return s, err
}

// majorMinor is "8.0" of "8.0.2.0".
func majorMinor(version string) string {
	part := strings.SplitN(version, ".", 3)
	return strings.Join(part[:min(len(part), 2)], ".")
}

// dynamicDevices is the version from which vCenter picks devices by their kind.
const dynamicDevices = 7

// send makes a call and returns what is in the answer.
func (v *VCenter) send(ctx context.Context, s *session, on Ref, method string, args ...*Element) (*Element, http.Header, error) {
	action := fmt.Sprint(oldest)
	header := http.Header{}
	if s != nil {
		if s.version >= dynamicDevices {
			action = "7.0"
		}
		if s.cookie != "" {
			header.Set("Cookie", s.cookie)
		}
	}
	header.Set("SOAPAction", "urn:vim25/"+action)
	var reply rest.Reply
	text, err := rest.Send[rest.Text](ctx, v.api, rest.Call{Method: "POST", Path: "/sdk", Header: header, Body: rest.Raw{Type: "text/xml; charset=utf-8", Data: envelope(on, method, args)}, Reply: &reply})
	if err != nil {
		return nil, nil, err
	}
	var answer Element
	if err = xml.Unmarshal([]byte(text), &answer); err == nil && answer.At("Body."+method+"Response") == nil {
		err = fmt.Errorf("there is no %sResponse in it", method)
	}
	if err != nil {
		return nil, nil, &rest.NoAnswerError{Cloud: DisplayName, Err: fmt.Errorf("the answer is not what the API promises: %w", err)}
	}
	if out := answer.At("Body." + method + "Response.returnval"); out != nil {
		return out, reply.Header, nil
	}
	return &Element{}, reply.Header, nil
}

// Call makes a call in a session, which is begun anew if it has ended. Nobody to call is
// the collector of properties.
func (v *VCenter) Call(ctx context.Context, on Ref, method string, args ...*Element) (*Element, error) {
	var ended *session
	for {
		s, err := v.login(ctx, ended)
		if err != nil {
			return nil, err
		}
		to := on
		if to == (Ref{}) {
			to = s.collector
		}
		answer, _, err := v.send(ctx, s, to, method, args...)
		if Code(err) != "NotAuthenticated" || ended != nil {
			return answer, err
		}
		ended = s
	}
}

// Object is one with properties that were asked for. Those that are not there are nil.
type Object struct {
	Ref
	Props map[string]*Element
}

func (o Object) Text(name string) string { return o.Props[name].Text("") }

// wanted are properties of objects of a type.
type wanted struct {
	kind  string
	paths []string
}

// everywhere goes through the inventory from its root.
func everywhere() []*Element {
	steps := [][3]string{{"folders", "Folder", "childEntity"}, {"machines", "Datacenter", "vmFolder"}, {"hardware", "Datacenter", "hostFolder"}, {"hosts", "ComputeResource", "host"}}
	var all []*Element
	for _, s := range steps {
		step := Elem("selectSet", Leaf("name", s[0]), Leaf("type", s[1]), Leaf("path", s[2]), Leaf("skip", false)).As("TraversalSpec")
		if s[0] != "hosts" {
			for _, next := range steps {
				step.Kids = append(step.Kids, Elem("selectSet", Leaf("name", next[0])))
			}
		}
		all = append(all, step)
	}
	return all
}

// Properties are those of the objects of a type: of these, or without any of all in the
// inventory. An object that is gone is left out.
func (v *VCenter) Properties(ctx context.Context, of []Ref, kind string, paths ...string) ([]Object, error) {
	return v.properties(ctx, of, wanted{kind, paths})
}

// properties are those of the objects of several types.
func (v *VCenter) properties(ctx context.Context, of []Ref, want ...wanted) ([]Object, error) {
	s, err := v.login(ctx, nil)
	if err != nil {
		return nil, err
	}
	filter := Elem("specSet")
	for _, w := range want {
		set := Elem("propSet", Leaf("type", w.kind), Leaf("all", false))
		for _, path := range w.paths {
			set.Kids = append(set.Kids, Leaf("pathSet", path))
		}
		filter.Kids = append(filter.Kids, set)
	}
	if of == nil {
		filter.Kids = append(filter.Kids, Elem("objectSet", append([]*Element{Link("obj", s.root), Leaf("skip", false)}, everywhere()...)...))
	}
	for _, to := range of {
		filter.Kids = append(filter.Kids, Elem("objectSet", Link("obj", to), Leaf("skip", false)))
	}
	filter.Kids = append(filter.Kids, Leaf("reportMissingObjectsInResults", true))
	method, args := "RetrievePropertiesEx", []*Element{filter, Elem("options")}
	return rest.All(ctx, func(ctx context.Context, token string) (found []Object, next string, err error) {
		if token != "" {
			method, args = "ContinueRetrievePropertiesEx", []*Element{Leaf("token", token)}
		}
		answer, err := v.Call(ctx, Ref{}, method, args...)
		for _, x := range answer.All("objects") {
			o := Object{x.At("obj").Ref(), map[string]*Element{}}
			for _, p := range x.All("propSet") {
				o.Props[p.Text("name")] = p.At("val")
			}
			for _, m := range x.All("missingSet") {
				if fault := m.At("fault.fault"); fault != nil && fault.Kind() == "NotAuthenticated" && err == nil {
					err = saidBy(fault, "the session ended", http.StatusInternalServerError)
				}
			}
			found = append(found, o)
		}
		return found, answer.Text("token"), err
	})
}

// taskPoll bounds the pauses between looks at a task.
const taskPoll = 2 * time.Second

// Task begins something and waits until it is done, or goes on after most. It returns what
// was made.
func (v *VCenter) Task(ctx context.Context, most time.Duration, on Ref, method string, args ...*Element) (made Ref, err error) {
	begun, err := v.Call(ctx, on, method, args...)
	if err != nil {
		return made, err
	}
	until := time.Now().Add(most)
	return rest.Await(ctx, taskPoll, func(ctx context.Context) (made Ref, done bool, err error) {
		found, err := v.properties(ctx, []Ref{begun.Ref()}, wanted{"Task", []string{"info.state", "info.result", "info.error"}})
		if err != nil {
			return made, false, err
		}
		if len(found) == 0 { // it is forgotten after a while
			return made, true, nil
		}
		switch found[0].Text("info.state") {
		case "success":
			return found[0].Props["info.result"].Ref(), true, nil
		case "error":
			why := found[0].Props["info.error"]
			return made, true, saidBy(why.At("fault"), cmp.Or(why.Text("localizedMessage"), method+" failed"), http.StatusConflict)
		}
		return made, time.Now().After(until), nil
	})
}
