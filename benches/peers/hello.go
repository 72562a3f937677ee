// SPDX-License-Identifier: Apache-2.0

// The handler of `warm` as a server in Go, which is a function as it is.
package main

import (
	"encoding/json"
	"log"
	"net/http"
	"os"
)

type event struct {
	Name string `json:"name"`
}

type answer struct {
	Message string `json:"message"`
}

func main() {
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var given event
		if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		told, err := json.Marshal(answer{"Hello, " + given.Name})
		if err != nil {
			log.Fatal(err)
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(told)
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
