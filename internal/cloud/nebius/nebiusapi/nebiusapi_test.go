package nebiusapi

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skypilot-go/sky/internal/cloud/grpc"
	"github.com/skypilot-go/sky/internal/cloud/rest"
)

// What an operation ends with is about room, and never about too many calls.
func TestWhyOperationsFail(t *testing.T) {
	for message, want := range map[string]string{"": "NotEnoughResources", "the quota of GPUs": "QuotaFailure"} {
		var refused *rest.Error
		if err := Failure(Operation{Status: &grpc.Status{Code: 8, Message: message}}); !errors.As(err, &refused) || refused.Code != want {
			t.Errorf("%q: %v", message, err)
		}
	}
	for _, o := range []Operation{{}, {Status: &grpc.Status{}}} {
		if err := Failure(o); err != nil {
			t.Error(err)
		}
	}
}

// The kind of a refusal is the field that it has in the details; others have the code that is
// written there.
func TestDetails(t *testing.T) {
	text, other := grpc.Marshal(serviceError{Code: "Own", Quota: &struct{}{}}), grpc.Marshal(serviceError{Code: "Own"})
	const kind = "type.googleapis.com/nebius.common.v1.ServiceError"
	for _, tt := range []struct {
		details []grpc.Any
		code    string
		status  int
	}{
		{nil, "", 0}, {[]grpc.Any{{Type: kind, Value: text}}, "QuotaFailure", 409}, {[]grpc.Any{{Type: kind, Value: other}}, "Own", 0},
		{[]grpc.Any{{Type: "another", Value: text}, {Type: kind, Value: []byte("x")}}, "", 0},
	} {
		if code, status := Detail(tt.details); code != tt.code || status != tt.status {
			t.Errorf("%v: %q, %d", tt.details, code, status)
		}
	}
}

// An operation that has ended is not waited for, and what refused to begin never was.
func TestWaitsThatAreNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, boom := time.Now(), errors.New("boom")
		if o, err := Wait(context.Background(), nil, time.Second, Operation{ID: "o", Status: &grpc.Status{}}, nil); err != nil || o.ID != "o" {
			t.Errorf("%+v, %v", o, err)
		}
		if _, err := Wait(context.Background(), nil, time.Second, Operation{}, boom); err != boom || time.Since(began) != 0 {
			t.Error(err)
		}
	})
}
