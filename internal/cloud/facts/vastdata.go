package facts

var vastdata = Cloud{Name: "vastdata", Display: "VastData", StoresOnly: true, Schemes: []string{"vastdata"}, StoreFiles: []string{".vastdata/vastdata.credentials", ".vastdata/vastdata.config"}}
