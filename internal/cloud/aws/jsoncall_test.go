package aws

import (
	"errors"
	"testing"

	"github.com/aws/smithy-go"

	"github.com/skypilot-go/sky/internal/cloud"
)

func TestRefusalsOfJSONCalls(t *testing.T) {
	for _, tt := range []struct {
		status     int
		body       string
		code, text string
	}{
		{400, `{"__type":"com.amazonaws.ssm#ParameterNotFound","message":"none"}`, "ParameterNotFound", "none"},
		{400, `{"__type":"AccessDeniedException","Message":"User: u is not authorized to perform: ssm:GetParameter on x"}`, "AccessDeniedException", "User: u is not authorized to perform: ssm:GetParameter on x"},
		{503, `busy`, "Status503", "busy"},
		{400, `{}`, "Status400", "{}"},
	} {
		err := jsonRefusal(tt.status, []byte(tt.body))
		var api smithy.APIError
		if !errors.As(err, &api) || api.ErrorCode() != tt.code || api.ErrorMessage() != tt.text || (api.ErrorFault() == smithy.FaultServer) != (tt.status >= 500) {
			t.Errorf("%d %s: %v", tt.status, tt.body, err)
		}
	}
	err := translate(t.Context(), use1a, &smithy.OperationError{ServiceID: "ssm", OperationName: "GetParameter", Err: jsonRefusal(503, []byte("busy"))})
	var unreachable *cloud.UnreachableError
	if !errors.As(err, &unreachable) {
		t.Error(err)
	}
}
