package vspherefake

import (
	"bytes"
	stdxml "encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"
	"github.com/vmware/govmomi/vim25/xml"
)

// elements are the names of the elements of a text.
func elements(text []byte) (names []string) {
	d := stdxml.NewDecoder(bytes.NewReader(text))
	for {
		token, err := d.Token()
		if err != nil {
			return names
		}
		if start, ok := token.(stdxml.StartElement); ok {
			names = append(names, start.Name.Local)
		}
	}
}

// inOrder holds a call to its schema: what is read of it and written by VMware's own types is
// the same.
func inOrder(call *simulator.Method, body []byte) error {
	var again bytes.Buffer
	if err := xml.NewEncoder(&again).Encode(call.Body); err != nil {
		return err
	}
	was, want := elements(body)[2:], elements(again.Bytes())
	if !slices.Equal(was, want) {
		return fmt.Errorf("%s has the elements %v, and its schema wants %v", call.Name, was, want)
	}
	return nil
}

const envelope = `<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><soapenv:Body>%s</soapenv:Body></soapenv:Envelope>`

// fault answers with a refusal, in the form that vCenter has for it.
func fault(w http.ResponseWriter, kind, message string) {
	var text strings.Builder
	_ = stdxml.EscapeText(&text, []byte(message))
	w.WriteHeader(http.StatusInternalServerError)
	fmt.Fprintf(w, envelope, `<soapenv:Fault><faultcode>ServerFaultCode</faultcode><faultstring>`+text.String()+`</faultstring><detail><`+kind+`Fault xmlns="urn:vim25" xsi:type="`+kind+`"></`+kind+`Fault></detail></soapenv:Fault>`)
}

// begun answers with a task.
func begun(w http.ResponseWriter, method string, task *simulator.Task) {
	fmt.Fprintf(w, envelope, `<`+method+`Response xmlns="urn:vim25"><returnval type="Task">`+task.Self.Value+`</returnval></`+method+`Response>`)
}

// failed is a task that was refused.
func failed(v *simulator.VirtualMachine, method string, why types.BaseMethodFault) *simulator.Task {
	task := simulator.CreateTask(v, method, func(*simulator.Task) (types.AnyType, types.BaseMethodFault) { return nil, why })
	task.Run()
	return task
}
