// Command snapshot answers for keys from a snapshot, with OldPanda's bloomfilter and nothing else.
//
// Usage: snapshot URL KEYS_FILE
// It prints one line of 0 and 1, a digit for each key.
package main

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"

	"github.com/OldPanda/bloomfilter"
)

func download(url string) ([]byte, error) {
	response, err := http.Get(url)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, body)
	}
	return body, err
}

func main() {
	if len(os.Args) != 3 {
		log.Fatal("usage: snapshot URL KEYS_FILE")
	}
	body, err := download(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	bloom, err := bloomfilter.FromBytes(body)
	if err != nil {
		log.Fatal(err)
	}
	keys, err := os.ReadFile(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	var answers strings.Builder
	for _, key := range strings.Split(strings.TrimSuffix(string(keys), "\n"), "\n") {
		if bloom.MightContain(key) {
			answers.WriteByte('1')
		} else {
			answers.WriteByte('0')
		}
	}
	fmt.Println(answers.String())
}
