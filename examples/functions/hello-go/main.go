// SPDX-License-Identifier: Apache-2.0

// A function: a server of HTTP on the port that PORT names.
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

func main() {
	greeting := os.Getenv("GREETING")
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		given := event{Name: "world"}
		if r.ContentLength > 0 {
			if err := json.NewDecoder(r.Body).Decode(&given); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
		}
		log.Printf("greeting %s for request %s", given.Name, r.Header.Get("X-Request-Id"))
		w.Header().Set("Content-Type", "application/json")
		if err := json.NewEncoder(w).Encode(map[string]string{"message": greeting + ", " + given.Name + "!"}); err != nil {
			log.Print(err)
		}
	})
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), nil))
}
