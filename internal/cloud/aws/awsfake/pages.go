package awsfake

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"
)

// Lists have pages, as the API reference says of each call: at most MaxResults
// entries, the first answer of several may be empty, and what leads to the next
// page is a token that means nothing to anybody, fits no other question and
// expires.

// limits are the smallest and largest MaxResults of the calls that have pages,
// and the parameter that names single things, with which MaxResults may not be
// given.
var limits = map[string]struct {
	least, most int
	names       string
}{
	"DescribeInstances":            {5, 1000, "InstanceId"},
	"DescribeVpcs":                 {5, 1000, "VpcId"},
	"DescribeSubnets":              {5, 1000, "SubnetId"},
	"DescribeRouteTables":          {5, 100, "RouteTableId"},
	"DescribeSecurityGroups":       {5, 1000, "GroupId"},
	"DescribeImages":               {1, 1000, "ImageId"},
	"DescribeInstanceTypes":        {5, 100, "InstanceType"},
	"DescribeCapacityReservations": {1, 1000, "CapacityReservationId"},
}

// tokenLife is how long the next page can be asked for.
const tokenLife = time.Minute

// rest is what a token leads to.
type rest struct {
	action, question string
	entries          any
	until            time.Time
	read             bool
}

// page cuts the next page off a list. The caller holds mu.
func page[T any](c *Cloud, region, action string, f url.Values, all []T) (entries []T, next string, no *fault) {
	limit, size := limits[action], c.Page
	if text := f.Get("MaxResults"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < limit.least || n > limit.most {
			return nil, "", refuse(http.StatusBadRequest, "InvalidParameterValue", "Value ( %s ) for parameter maxResults is invalid. Expecting a value between %d and %d.", text, limit.least, limit.most)
		}
		if f.Has(limit.names + ".1") {
			return nil, "", refuse(http.StatusBadRequest, "InvalidParameterCombination", "The parameter %ssSet cannot be used with the parameter maxResults", limit.names)
		}
		size = min(size, n)
	}
	if f.Has(limit.names + ".1") { // who names things gets them all
		return all, "", nil
	}
	return part(c, action, region+hash(f, "NextToken"), f.Get("NextToken"), size, all)
}

// part is page for any call: the question is all of it but the token.
func part[T any](c *Cloud, action, question, token string, size int, all []T) (entries []T, next string, no *fault) {
	if token != "" {
		r := c.pages[token]
		if r == nil || r.action != action || r.question != question || time.Now().After(r.until) {
			return nil, "", refuse(http.StatusBadRequest, "InvalidNextToken", "The token '%s' is invalid or has expired.", token)
		}
		r.read = true
		all = r.entries.([]T)
	} else if len(all) > 0 && c.EmptyPages {
		return nil, c.more(action, question, all), nil
	}
	if len(all) <= size {
		return all, "", nil
	}
	return all[:size], c.more(action, question, all[size:]), nil
}

func (c *Cloud) more(action, question string, entries any) string {
	token := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%s %s", c.next("page"), action))
	c.pages[token] = &rest{action: action, question: question, entries: entries, until: time.Now().Add(tokenLife)}
	return token
}

// Unread lists the calls whose lists somebody began and did not read to the
// end.
func (c *Cloud) Unread() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, r := range c.pages {
		if !r.read && !slices.Contains(out, r.action) {
			out = append(out, r.action)
		}
	}
	slices.Sort(out)
	return out
}

// Paged lists the calls that have had pages.
func (c *Cloud) Paged() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, r := range c.pages {
		if !slices.Contains(out, r.action) {
			out = append(out, r.action)
		}
	}
	slices.Sort(out)
	return out
}
