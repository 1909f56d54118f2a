// go-redis: its typed Bloom and cuckoo commands, in both versions of the protocol.
package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var everywhere = context.Background()

func check(name string, body func()) {
	defer func() {
		trouble := recover()
		if trouble == nil {
			fmt.Printf("ok\t%s\n", name)
			return
		}
		why := strings.Join(strings.Fields(fmt.Sprint(trouble)), " ")
		// A command that is still to come is no failure; the table says how many wait.
		word := "failed"
		if strings.Contains(why, "not here yet") {
			word = "waits"
		}
		fmt.Printf("%s\t%s\t%s\n", word, name, why)
	}()
	body()
}

func same(found, wanted any) {
	if !reflect.DeepEqual(found, wanted) {
		panic(fmt.Sprintf("%v instead of %v", found, wanted))
	}
}

func value[T any](found T, err error) T {
	if err != nil {
		panic(err)
	}
	return found
}

func refused(text string, err error) {
	if err == nil {
		panic("no error with " + text)
	}
	if !strings.Contains(err.Error(), text) {
		panic("refused with " + err.Error() + " instead of " + text)
	}
}

func items(count int) []any {
	all := make([]any, count)
	for number := range all {
		all[number] = fmt.Sprintf("item %d", number)
	}
	return all
}

func all(count int) []bool {
	answers := make([]bool, count)
	for number := range answers {
		answers[number] = true
	}
	return answers
}

func run(protocol int) {
	fmt.Printf("client\tgo-redis\t%s\tRESP%d\n", os.Getenv("UMBEL_GO_REDIS"), protocol)
	address := "127.0.0.1:" + os.Getenv("UMBEL_PORT")
	connect := func() *redis.Client {
		return redis.NewClient(&redis.Options{Addr: address, Protocol: protocol, ReadTimeout: time.Minute})
	}
	client := connect()
	defer client.Close()
	key := func(name string) string { return fmt.Sprintf("go-redis:%d:%s", protocol, name) }
	for _, name := range client.Keys(everywhere, "*").Val() {
		if strings.HasPrefix(name, key("")) {
			client.Del(everywhere, name)
		}
	}

	check("bf reserve with every option", func() {
		same(value(client.BFReserve(everywhere, key("plain"), 0.01, 1000).Result()), "OK")
		same(value(client.BFReserveExpansion(everywhere, key("expanding"), 0.001, 1000, 4).Result()), "OK")
		same(value(client.BFReserveNonScaling(everywhere, key("fixed"), 0.001, 100).Result()), "OK")
		same(value(client.BFInfo(everywhere, key("expanding")).Result()).ExpansionRate, int64(4))
		refused("item exists", client.BFReserve(everywhere, key("plain"), 0.01, 1000).Err())
		refused("error rate", client.BFReserve(everywhere, key("new"), 1.5, 1000).Err())
	})
	check("bf add and exists", func() {
		same(value(client.BFAdd(everywhere, key("add"), "one").Result()), true)
		same(value(client.BFAdd(everywhere, key("add"), "one").Result()), false)
		same(value(client.BFExists(everywhere, key("add"), "one").Result()), true)
		same(value(client.BFExists(everywhere, key("add"), "two").Result()), false)
	})
	check("bf madd and mexists", func() {
		same(value(client.BFMAdd(everywhere, key("madd"), "a", "b").Result()), []bool{true, true})
		same(value(client.BFMAdd(everywhere, key("madd"), "b", "c").Result()), []bool{false, true})
		same(value(client.BFMExists(everywhere, key("madd"), "a", "x").Result()), []bool{true, false})
	})
	check("bf insert with every option", func() {
		made := &redis.BFInsertOptions{Capacity: 5000, Error: 0.0001, Expansion: 3}
		same(value(client.BFInsert(everywhere, key("insert"), made, "a", "b").Result()), []bool{true, true})
		there := &redis.BFInsertOptions{NoCreate: true}
		same(value(client.BFInsert(everywhere, key("insert"), there, "b", "c").Result()), []bool{false, true})
		refused("not found", client.BFInsert(everywhere, key("missing"), there, "a").Err())
	})
	check("bf info and card", func() {
		value(client.BFReserve(everywhere, key("info"), 0.01, 200).Result())
		value(client.BFMAdd(everywhere, key("info"), items(50)...).Result())
		info := value(client.BFInfo(everywhere, key("info")).Result())
		card := value(client.BFCard(everywhere, key("info")).Result())
		same([]int64{info.Capacity, info.Filters, info.ItemsInserted, info.ExpansionRate}, []int64{200, 1, card, 2})
		same(info.Size >= 200, true)
		same(value(client.BFInfoCapacity(everywhere, key("info")).Result()).Capacity, int64(200))
		same(value(client.BFInfoItems(everywhere, key("info")).Result()).ItemsInserted, card)
		refused("not found", client.BFInfo(everywhere, key("missing")).Err())
	})
	check("bf scandump and loadchunk", func() {
		value(client.BFReserve(everywhere, key("dump"), 0.01, 1000).Result())
		value(client.BFMAdd(everywhere, key("dump"), items(100)...).Result())
		for iterator := int64(0); ; {
			part := value(client.BFScanDump(everywhere, key("dump"), iterator).Result())
			iterator = part.Iter
			if iterator == 0 {
				break
			}
			value(client.BFLoadChunk(everywhere, key("loaded"), iterator, part.Data).Result())
		}
		same(value(client.BFMExists(everywhere, key("loaded"), items(100)...).Result()), all(100))
	})
	check("cf reserve with every option", func() {
		options := &redis.CFReserveOptions{Capacity: 1000, BucketSize: 4, MaxIterations: 30, Expansion: 2}
		same(value(client.CFReserveWithArgs(everywhere, key("cf reserve"), options).Result()), "OK")
		info := value(client.CFInfo(everywhere, key("cf reserve")).Result())
		same([]int64{info.BucketSize, info.MaxIteration, info.ExpansionRate}, []int64{4, 30, 2})
		refused("item exists", client.CFReserve(everywhere, key("cf reserve"), 1000).Err())
	})
	check("cf add, insert, count", func() {
		same(value(client.CFAdd(everywhere, key("cf"), "one").Result()), true)
		same(value(client.CFAddNX(everywhere, key("cf"), "one").Result()), false)
		options := &redis.CFInsertOptions{Capacity: 1000}
		same(value(client.CFInsert(everywhere, key("cf"), options, "one", "two").Result()), []bool{true, true})
		same(value(client.CFInsertNX(everywhere, key("cf"), options, "one", "three").Result()), []int64{0, 1})
		same(value(client.CFCount(everywhere, key("cf"), "one").Result()), int64(2))
		same(value(client.CFExists(everywhere, key("cf"), "two").Result()), true)
		same(value(client.CFMExists(everywhere, key("cf"), "one", "four").Result()), []bool{true, false})
	})
	check("cf del and info", func() {
		same(value(client.CFDel(everywhere, key("cf"), "never added").Result()), false)
		same(value(client.CFDel(everywhere, key("cf"), "three").Result()), true)
		same(value(client.CFExists(everywhere, key("cf"), "three").Result()), false)
		info := value(client.CFInfo(everywhere, key("cf")).Result())
		// An item that was added twice counts twice.
		same([]int64{info.NumItemsInserted, info.NumItemsDeleted, info.NumFilters}, []int64{3, 1, 1})
		same(info.Size > 0 && info.NumBuckets > 0, true)
		refused("Not found", client.CFDel(everywhere, key("missing"), "x").Err())
	})
	check("pipeline of 1000", func() {
		pipeline := client.Pipeline()
		for _, item := range items(500) {
			pipeline.BFAdd(everywhere, key("pipeline"), item)
		}
		for _, item := range items(500) {
			pipeline.BFExists(everywhere, key("pipeline"), item)
		}
		answers := value(pipeline.Exec(everywhere))
		same(len(answers), 1000)
		for _, answer := range answers[500:] {
			same(answer.(*redis.BoolCmd).Val(), true)
		}
	})
	check("multi and exec", func() {
		transaction := client.TxPipeline()
		first := transaction.BFAdd(everywhere, key("multi"), "a")
		second := transaction.BFExists(everywhere, key("multi"), "b")
		value(transaction.Exec(everywhere))
		same([]bool{first.Val(), second.Val()}, []bool{true, false})
	})
	check("binary, empty and unicode items", func() {
		strange := []any{[]byte{0, 255, 13, 10}, "", "элемент 🌼"}
		same(value(client.BFMAdd(everywhere, key("ключ")+"\x00\xff", strange...).Result()), all(3))
		same(value(client.BFMExists(everywhere, key("ключ")+"\x00\xff", strange...).Result()), all(3))
	})
	check("wrong type", func() {
		refused("WRONGTYPE", client.BFAdd(everywhere, key("cf"), "x").Err())
		refused("WRONGTYPE", client.CFAdd(everywhere, key("add"), "x").Err())
	})
	check("reconnects after client kill", func() {
		victim := redis.NewClient(&redis.Options{Addr: address, Protocol: protocol, PoolSize: 1})
		defer victim.Close()
		number := value(victim.ClientID(everywhere).Result())
		same(value(client.ClientKillByFilter(everywhere, "ID", fmt.Sprint(number)).Result()), int64(1))
		time.Sleep(100 * time.Millisecond)
		same(value(victim.BFExists(everywhere, key("add"), "one").Result()), true)
	})
	check("del, exists and type", func() {
		same(value(client.Type(everywhere, key("add")).Result()), "MBbloom--")
		same(value(client.Exists(everywhere, key("add"), key("missing")).Result()), int64(1))
		same(value(client.Del(everywhere, key("add")).Result()), int64(1))
	})
	check("scan, rename, expire and ttl", func() {
		keys, _, err := client.Scan(everywhere, 0, key("cf"), 10000).Result()
		same(value(keys, err), []string{key("cf")})
		same(value(client.Rename(everywhere, key("cf"), key("renamed")).Result()), "OK")
		same(value(client.Expire(everywhere, key("renamed"), 100*time.Second).Result()), true)
		same(value(client.TTL(everywhere, key("renamed")).Result()) > 90*time.Second, true)
	})
}

func main() {
	for _, protocol := range []int{2, 3} {
		run(protocol)
	}
}
