package facts

var vastdata = Cloud{Name: "vastdata", Display: "VastData", StoresOnly: true, Schemes: []string{"vastdata"}}
