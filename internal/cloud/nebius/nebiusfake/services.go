package nebiusfake

import "strings"

// The messages and calls that all services of resources have, and those of resources that
// callers make. GetByNameRequest is that of nebius.common.v1 for all of them, which has the
// fields of those that some packages have of their own.
const (
	found = `
		message GetXRequest { string id = 1; }
		message ListXsRequest { string parent_id = 1; int64 page_size = 2; string page_token = 3; }
		message ListXsResponse { repeated X items = 1; string next_page_token = 2; }
		MESSAGES
		service XService {
			rpc Get(GetXRequest) returns (X);
			rpc GetByName(nebius.common.v1.GetByNameRequest) returns (X);
			rpc List(ListXsRequest) returns (ListXsResponse);
			CALLS
		}`
	made = `
		message CreateXRequest { nebius.common.v1.ResourceMetadata metadata = 1; XSpec spec = 2; }
		message DeleteXRequest { string id = 1; }` + found
)

// service is the definition of a resource's service, with more messages and calls.
func service(noun, form, messages string, calls ...string) string {
	if form == made {
		calls = append(calls, "rpc Create(CreateXRequest) returns (nebius.common.v1.Operation);", "rpc Delete(DeleteXRequest) returns (nebius.common.v1.Operation);")
	}
	text := strings.NewReplacer("MESSAGES", messages, "CALLS", strings.Join(calls, "\n")).Replace(form)
	for _, name := range []string{"GetX", "ListX", "CreateX", "DeleteX", "XService", "XSpec", "(X)", " X "} {
		text = strings.ReplaceAll(text, name, strings.ReplaceAll(name, "X", noun))
	}
	return text
}
