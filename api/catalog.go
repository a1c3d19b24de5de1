package api

// CatalogStatus is where one cloud's prices come from and how old they are.
type CatalogStatus struct {
	Cloud         string   `json:"cloud"`
	File          string   `json:"file"`
	FetchedAt     int64    `json:"fetched_at"`     // Unix seconds; 0: there is no list yet
	AgeSeconds    int64    `json:"age_seconds"`    //
	PeriodSeconds int64    `json:"period_seconds"` // after which it is fetched again; 0: never
	Overdue       bool     `json:"overdue"`
	Edited        bool     `json:"edited"` // by the user: never overwritten
	Offers        int      `json:"offers"`
	Unpriced      int      `json:"unpriced"`
	Malformed     int      `json:"malformed"` // rows that were skipped
	Problems      []string `json:"problems,omitempty"`
	Problem       string   `json:"problem,omitempty"` // why it cannot be used
}

// CatalogRefreshBody names the clouds whose lists are fetched again; none means
// all.
type CatalogRefreshBody struct {
	Envelope
	Clouds Strings `json:"clouds"`
}
