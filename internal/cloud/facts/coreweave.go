package facts

var coreweave = Cloud{Name: "coreweave", Display: "CoreWeave", StoresOnly: true, Schemes: []string{"cw"}, StoreFiles: []string{".coreweave/cw.credentials", ".coreweave/cw.config"}}
