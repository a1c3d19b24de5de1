package aws

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	sdk "github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/skypilot-go/sky/internal/bounded"
)

// A signedCall is a call of an API of AWS that is made without the SDK's client of it.
type signedCall struct {
	service, operation string // the service's name in signatures
	endpoint, region   string
	header             http.Header
	body               []byte
	refusal            func(status int, answer []byte) error // of an answer that is not 200
}

// signed makes a call and gives its answer to read. It repeats what the SDK's clients
// repeat, as often and as slowly, and corrects a clock that is wrong as they do.
func (p *Provider) signed(ctx context.Context, c sdk.Config, call signedCall, read func(answer []byte) error) error {
	retryer := p.retryer().(sdk.RetryerV2)
	var skew time.Duration
	for attempt := 1; ; attempt++ {
		release, err := retryer.GetAttemptToken(ctx)
		if err != nil {
			return err
		}
		answer, ahead, err := p.attempt(ctx, c, call, skew)
		release(err)
		if err == nil {
			return read(answer)
		}
		badTime := (ahead - skew).Abs() >= skewedBy
		if attempt >= retryer.MaxAttempts() || !retryer.IsErrorRetryable(err) && !badTime {
			return err
		}
		delay, derr := retryer.RetryDelay(attempt, err)
		if derr != nil {
			return err
		}
		skew = ahead
		select {
		case <-ctx.Done():
			return err
		case <-time.After(delay):
		}
	}
}

// skewedBy is how wrong a clock must be for AWS to refuse signatures for it.
const skewedBy = 4 * time.Minute

// attempt makes a call once, signed for a time that is skew from now. ahead is how far AWS's
// clock is before this machine's, as its answer says; without an answer it is skew.
func (p *Provider) attempt(ctx context.Context, c sdk.Config, call signedCall, skew time.Duration) (answer []byte, ahead time.Duration, err error) {
	defer func() {
		if err != nil {
			err = &smithy.OperationError{ServiceID: call.service, OperationName: call.operation, Err: err}
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, strings.TrimRight(call.endpoint, "/")+"/", bytes.NewReader(call.body))
	if err != nil {
		return nil, skew, err
	}
	req.Header = call.header.Clone()
	keys, err := c.Credentials.Retrieve(ctx)
	if err != nil {
		return nil, skew, err
	}
	if err := v4.NewSigner().SignHTTP(ctx, keys, req, fmt.Sprintf("%x", sha256.Sum256(call.body)), call.service, call.region, time.Now().Add(skew)); err != nil {
		return nil, skew, err
	}
	resp, err := c.HTTPClient.Do(req)
	if err != nil {
		return nil, skew, &smithyhttp.RequestSendError{Err: err}
	}
	defer resp.Body.Close()
	ahead = skew
	if at, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		ahead = time.Until(at)
	}
	if answer, err = bounded.ReadAll(resp.Body, 1<<20, "an answer of AWS"); err != nil {
		return nil, ahead, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, ahead, &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: resp}, Err: call.refusal(resp.StatusCode, answer)}
	}
	return answer, ahead, nil
}

// refusalOf is an answer that is not 200 as the SDK's clients give it. Without a code in it,
// something before the API has answered.
func refusalOf(status int, code, message string, answer []byte) error {
	e := &smithy.GenericAPIError{Code: code, Message: message, Fault: smithy.FaultClient}
	if code == "" {
		e.Code, e.Message = fmt.Sprintf("Status%d", status), string(answer[:min(len(answer), 200)])
	}
	if status >= 500 {
		e.Fault = smithy.FaultServer
	}
	return e
}
