package vsphere

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

// el is an element of XML, of a call or of an answer. The API wants the children of
// each element in the order of its schema.
type el struct {
	XMLName xml.Name
	Attrs   []xml.Attr `xml:",any,attr"`
	Text    string     `xml:",chardata"`
	Kids    []*el      `xml:",any"`
}

// ref names an object of a vCenter.
type ref struct{ kind, id string }

const schemaInstance = "http://www.w3.org/2001/XMLSchema-instance"

// elem is an element with children, leaf one with a text, and link one that names an
// object.
func elem(name string, kids ...*el) *el { return &el{XMLName: xml.Name{Local: name}, Kids: kids} }

func leaf(name string, text any) *el {
	return &el{XMLName: xml.Name{Local: name}, Text: fmt.Sprint(text)}
}

func link(name string, to ref) *el {
	return &el{XMLName: xml.Name{Local: name}, Text: to.id, Attrs: []xml.Attr{{Name: xml.Name{Local: "type"}, Value: to.kind}}}
}

// as is the element as one of a derived type.
func (x *el) as(kind string) *el {
	x.Attrs = append(x.Attrs, xml.Attr{Name: xml.Name{Space: schemaInstance, Local: "type"}, Value: kind})
	return x
}

// kind is the type that an element says it has, without a prefix.
func (x *el) kind() string {
	for _, a := range x.Attrs {
		if a.Name.Space == schemaInstance && a.Name.Local == "type" {
			return a.Value[strings.LastIndex(a.Value, ":")+1:]
		}
	}
	return ""
}

// ref is the object that an element names.
func (x *el) ref() ref {
	if x == nil {
		return ref{}
	}
	to := ref{id: x.Text}
	for _, a := range x.Attrs {
		if a.Name.Space == "" && a.Name.Local == "type" {
			to.kind = a.Value
		}
	}
	return to
}

// at is the first element at a path such as "info.error"; nil: there is none.
func (x *el) at(path string) *el {
	for name := range strings.SplitSeq(path, ".") {
		all := x.all(name)
		if len(all) == 0 {
			return nil
		}
		x = all[0]
	}
	return x
}

// all are the children of a name.
func (x *el) all(name string) (found []*el) {
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

// text is that of the element at a path; "": its own.
func (x *el) text(path string) string {
	if path != "" {
		x = x.at(path)
	}
	if x == nil {
		return ""
	}
	return strings.TrimSpace(x.Text)
}

func (x *el) write(b *bytes.Buffer) {
	b.WriteString("<" + x.XMLName.Local)
	for _, a := range x.Attrs {
		name := a.Name.Local
		switch a.Name.Space {
		case schemaInstance:
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
		_ = xml.EscapeText(b, []byte(x.Text))
	}
	for _, k := range x.Kids {
		k.write(b)
	}
	b.WriteString("</" + x.XMLName.Local + ">")
}

// envelope is a call as it is sent.
func envelope(on ref, method string, args []*el) []byte {
	call := elem(method, append([]*el{link("_this", on)}, args...)...)
	call.Attrs = []xml.Attr{{Name: xml.Name{Local: "xmlns"}, Value: "urn:vim25"}}
	var b bytes.Buffer
	b.WriteString(xml.Header + `<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="` + schemaInstance + `"><soapenv:Body>`)
	call.write(&b)
	b.WriteString("</soapenv:Body></soapenv:Envelope>")
	return b.Bytes()
}

// refusal reads a SOAP fault, whose status is that of a broken server.
func refusal(status int, header http.Header, body []byte) error {
	var answer el
	if xml.Unmarshal(body, &answer) == nil {
		if fault := answer.at("Body.Fault"); fault != nil {
			var detail *el
			if d := fault.at("detail"); d != nil && len(d.Kids) > 0 {
				detail = d.Kids[0]
			}
			return saidBy(detail, fault.text("faultstring"), status)
		}
	}
	return rest.ReadError(status, header, body)
}

// saidBy is a fault of a call or of a task as an error, with what people need to
// understand it.
func saidBy(fault *el, message string, status int) *rest.Error {
	out := &rest.Error{Status: status, Message: message}
	if fault == nil {
		return out
	}
	out.Code = cmp.Or(fault.kind(), strings.TrimSuffix(fault.XMLName.Local, "Fault"))
	for _, about := range []string{"privilegeId", "invalidProperty", "property", "name", "reason"} {
		if text := fault.text(about); text != "" && !strings.Contains(out.Message, text) {
			out.Message = strings.TrimPrefix(strings.TrimSuffix(out.Message, ".")+" ("+about+": "+text+")", " ")
		}
	}
	return out
}

// code is the type of the fault that an error is; "": it is none.
func code(err error) string {
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
	root, collector ref
	manager         ref // of sessions
}

// vcenter makes the calls to one vCenter.
type vcenter struct {
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
func (v *vcenter) login(ctx context.Context, ended *session) (*session, error) {
	return v.enter(ctx, func() bool { return v.session != nil && v.session != ended })
}

// check logs in anew, whatever was refused before.
func (v *vcenter) check(ctx context.Context) error {
	var old *session
	_, err := v.enter(ctx, func() bool { old, v.refused = v.session, nil; return false })
	if err == nil && old != nil {
		_, _, _ = v.send(ctx, old, old.manager, "Logout") // else it ends by itself
	}
	return err
}

// enter returns the session if it is good, and else a new one. Only one caller logs in.
func (v *vcenter) enter(ctx context.Context, good func() bool) (*session, error) {
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
	_, header, err := v.send(ctx, s, s.manager, "Login", leaf("userName", v.User), leaf("password", v.Password))
	if err != nil {
		if code(err) == "InvalidLogin" {
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
		return nil, &rest.NoAnswerError{Cloud: displayName, Err: errors.New("a login has no cookie")}
	}
	v.session = s
	return s, nil
}

// content is what has to be known before a login.
func (v *vcenter) content(ctx context.Context) (*session, error) {
	answer, _, err := v.send(ctx, nil, ref{"ServiceInstance", "ServiceInstance"}, "RetrieveServiceContent")
	if err != nil {
		return nil, err
	}
	s := &session{root: answer.at("rootFolder").ref(), collector: answer.at("propertyCollector").ref(), manager: answer.at("sessionManager").ref()}
	at := cloud.Place{Cloud: Name, Region: v.Name}
	_, _ = fmt.Sscan(majorMinor(answer.text("about.apiVersion")), &s.version)
	switch {
	case answer.text("about.apiType") != "VirtualCenter":
		err = &cloud.InvalidError{Place: at, Err: fmt.Errorf("%s is %q and no vCenter: a single host makes no machines from templates", v.Name, answer.text("about.fullName"))}
	case s.version < oldest:
		err = &cloud.InvalidError{Place: at, Err: fmt.Errorf("%s is version %s, and sky needs vCenter %v or newer", v.Name, answer.text("about.apiVersion"), oldest)}
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
func (v *vcenter) send(ctx context.Context, s *session, on ref, method string, args ...*el) (*el, http.Header, error) {
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
	var answer el
	if err = xml.Unmarshal([]byte(text), &answer); err == nil && answer.at("Body."+method+"Response") == nil {
		err = fmt.Errorf("there is no %sResponse in it", method)
	}
	if err != nil {
		return nil, nil, &rest.NoAnswerError{Cloud: displayName, Err: fmt.Errorf("the answer is not what the API promises: %w", err)}
	}
	if out := answer.at("Body." + method + "Response.returnval"); out != nil {
		return out, reply.Header, nil
	}
	return &el{}, reply.Header, nil
}

// call makes a call in a session, which is begun anew if it has ended. Nobody to call is
// the collector of properties.
func (v *vcenter) call(ctx context.Context, on ref, method string, args ...*el) (*el, error) {
	var ended *session
	for {
		s, err := v.login(ctx, ended)
		if err != nil {
			return nil, err
		}
		to := on
		if to == (ref{}) {
			to = s.collector
		}
		answer, _, err := v.send(ctx, s, to, method, args...)
		if code(err) != "NotAuthenticated" || ended != nil {
			return answer, err
		}
		ended = s
	}
}

// object is one with properties that were asked for. Those that are not there are nil.
type object struct {
	ref
	props map[string]*el
}

func (o object) text(name string) string { return o.props[name].text("") }

// wanted are properties of objects of a type.
type wanted struct {
	kind  string
	paths []string
}

// everywhere goes through the inventory from its root.
func everywhere() []*el {
	steps := [][3]string{{"folders", "Folder", "childEntity"}, {"machines", "Datacenter", "vmFolder"}, {"hardware", "Datacenter", "hostFolder"}, {"hosts", "ComputeResource", "host"}}
	var all []*el
	for _, s := range steps {
		step := elem("selectSet", leaf("name", s[0]), leaf("type", s[1]), leaf("path", s[2]), leaf("skip", false)).as("TraversalSpec")
		if s[0] != "hosts" {
			for _, next := range steps {
				step.Kids = append(step.Kids, elem("selectSet", leaf("name", next[0])))
			}
		}
		all = append(all, step)
	}
	return all
}

// properties are those of the objects of certain types: of these, or without any of all in
// the inventory. An object that is gone is left out.
func (v *vcenter) properties(ctx context.Context, of []ref, want ...wanted) ([]object, error) {
	s, err := v.login(ctx, nil)
	if err != nil {
		return nil, err
	}
	filter := elem("specSet")
	for _, w := range want {
		set := elem("propSet", leaf("type", w.kind), leaf("all", false))
		for _, path := range w.paths {
			set.Kids = append(set.Kids, leaf("pathSet", path))
		}
		filter.Kids = append(filter.Kids, set)
	}
	if of == nil {
		filter.Kids = append(filter.Kids, elem("objectSet", append([]*el{link("obj", s.root), leaf("skip", false)}, everywhere()...)...))
	}
	for _, to := range of {
		filter.Kids = append(filter.Kids, elem("objectSet", link("obj", to), leaf("skip", false)))
	}
	filter.Kids = append(filter.Kids, leaf("reportMissingObjectsInResults", true))
	method, args := "RetrievePropertiesEx", []*el{filter, elem("options")}
	return rest.All(ctx, func(ctx context.Context, token string) (found []object, next string, err error) {
		if token != "" {
			method, args = "ContinueRetrievePropertiesEx", []*el{leaf("token", token)}
		}
		answer, err := v.call(ctx, ref{}, method, args...)
		for _, x := range answer.all("objects") {
			o := object{x.at("obj").ref(), map[string]*el{}}
			for _, p := range x.all("propSet") {
				o.props[p.text("name")] = p.at("val")
			}
			for _, m := range x.all("missingSet") {
				if fault := m.at("fault.fault"); fault != nil && fault.kind() == "NotAuthenticated" && err == nil {
					err = saidBy(fault, "the session ended", http.StatusInternalServerError)
				}
			}
			found = append(found, o)
		}
		return found, answer.text("token"), err
	})
}

// taskPoll bounds the pauses between looks at a task.
const taskPoll = 2 * time.Second

// task begins something and waits until it is done, or goes on after most. It returns what
// was made.
func (v *vcenter) task(ctx context.Context, most time.Duration, on ref, method string, args ...*el) (made ref, err error) {
	begun, err := v.call(ctx, on, method, args...)
	if err != nil {
		return made, err
	}
	until := time.Now().Add(most)
	return rest.Await(ctx, taskPoll, func(ctx context.Context) (made ref, done bool, err error) {
		found, err := v.properties(ctx, []ref{begun.ref()}, wanted{"Task", []string{"info.state", "info.result", "info.error"}})
		if err != nil {
			return made, false, err
		}
		if len(found) == 0 { // it is forgotten after a while
			return made, true, nil
		}
		switch found[0].text("info.state") {
		case "success":
			return found[0].props["info.result"].ref(), true, nil
		case "error":
			why := found[0].props["info.error"]
			return made, true, saidBy(why.at("fault"), cmp.Or(why.text("localizedMessage"), method+" failed"), http.StatusConflict)
		}
		return made, time.Now().After(until), nil
	})
}
