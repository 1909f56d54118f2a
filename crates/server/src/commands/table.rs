//! All commands: what they are called, what they take and what they are for.

use std::collections::HashMap;
use std::sync::LazyLock;

/// A row of the table.
#[derive(Debug)]
pub struct Row {
    /// Which command it is.
    pub id: Id,
    /// Its name in lower case; a subcommand's is `command|subcommand`.
    pub name: &'static str,
    /// How many words it takes, its name included; so many or more if negative.
    pub arity: i16,
    /// What it does, in the words of `COMMAND INFO`.
    pub flags: &'static [&'static str],
    /// The first and the last word that is a key (-1: to the end), and the step from one to the next; zeros for none.
    pub keys: (i8, i8, i8),
    /// Categories besides those that follow from its flags.
    pub categories: &'static [&'static str],
    /// Its group in the documentation.
    pub group: &'static str,
    /// What it is for.
    pub summary: &'static str,
}

macro_rules! rows {
    ($($id:ident $name:literal $arity:literal [$($flag:literal)*] $keys:tt [$($category:literal)*] $group:literal $summary:literal;)*) => {
        /// Which command.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "the table says what each is")]
        pub enum Id { $($id),* }

        /// All commands and subcommands, in the order of their numbers.
        pub static TABLE: &[Row] = &[$(Row {
            id: Id::$id,
            name: $name,
            arity: $arity,
            flags: &[$($flag),*],
            keys: $keys,
            categories: &[$($category),*],
            group: $group,
            summary: $summary,
        }),*];
    };
}

rows! {
    BfAdd "bf.add" 3 ["write" "denyoom" "fast" "module"] (1, 1, 1) ["bloom"] "bf" "Adds an item to a filter, which is made if there is none";
    BfMadd "bf.madd" -3 ["write" "denyoom" "module"] (1, 1, 1) ["bloom"] "bf" "Adds items to a filter, which is made if there is none";
    BfInsert "bf.insert" -4 ["write" "denyoom" "module"] (1, 1, 1) ["bloom"] "bf" "Adds items to a filter, which is made as asked if there is none";
    BfExists "bf.exists" 3 ["readonly" "fast" "module"] (1, 1, 1) ["bloom"] "bf" "Whether an item may have been added to a filter";
    BfMexists "bf.mexists" -3 ["readonly" "module"] (1, 1, 1) ["bloom"] "bf" "Whether items may have been added to a filter";
    BfReserve "bf.reserve" -4 ["write" "denyoom" "module"] (1, 1, 1) ["bloom"] "bf" "Makes a filter";
    BfInfo "bf.info" -2 ["readonly" "fast" "module"] (1, 1, 1) ["bloom"] "bf" "What a filter is and holds";
    BfCard "bf.card" 2 ["readonly" "fast" "module"] (1, 1, 1) ["bloom"] "bf" "How many items were new to a filter when they were added";
    BfScandump "bf.scandump" 3 ["readonly" "module"] (1, 1, 1) ["bloom"] "bf" "The next part of a filter, to be saved";
    BfLoadchunk "bf.loadchunk" 4 ["write" "denyoom" "module"] (1, 1, 1) ["bloom" "dangerous"] "bf" "Puts a part of a saved filter back";
    BfDebug "bf.debug" 2 ["readonly" "module"] (1, 1, 1) ["bloom" "dangerous"] "bf" "The arrays that a filter consists of";

    CfAdd "cf.add" 3 ["write" "denyoom" "fast" "module"] (1, 1, 1) ["cuckoo"] "cf" "Adds an item to an erasable filter, which is made if there is none";
    CfAddnx "cf.addnx" 3 ["write" "denyoom" "fast" "module"] (1, 1, 1) ["cuckoo"] "cf" "Adds an item to an erasable filter unless it is there";
    CfInsert "cf.insert" -4 ["write" "denyoom" "module"] (1, 1, 1) ["cuckoo"] "cf" "Adds items to an erasable filter, which is made as asked if there is none";
    CfInsertnx "cf.insertnx" -4 ["write" "denyoom" "module"] (1, 1, 1) ["cuckoo"] "cf" "Adds items to an erasable filter unless they are there";
    CfExists "cf.exists" 3 ["readonly" "fast" "module"] (1, 1, 1) ["cuckoo"] "cf" "Whether an item may be in an erasable filter";
    CfMexists "cf.mexists" -3 ["readonly" "module"] (1, 1, 1) ["cuckoo"] "cf" "Whether items may be in an erasable filter";
    CfDel "cf.del" 3 ["write" "fast" "module"] (1, 1, 1) ["cuckoo"] "cf" "Takes an item out of an erasable filter, once, if it was added";
    CfCount "cf.count" 3 ["readonly" "fast" "module"] (1, 1, 1) ["cuckoo"] "cf" "How often an item is in an erasable filter";
    CfReserve "cf.reserve" -3 ["write" "denyoom" "module"] (1, 1, 1) ["cuckoo"] "cf" "Makes an erasable filter";
    CfInfo "cf.info" 2 ["readonly" "fast" "module"] (1, 1, 1) ["cuckoo"] "cf" "What an erasable filter is and holds";
    CfScandump "cf.scandump" 3 ["readonly" "module"] (1, 1, 1) ["cuckoo"] "cf" "The next part of an erasable filter, to be saved";
    CfLoadchunk "cf.loadchunk" 4 ["write" "denyoom" "module"] (1, 1, 1) ["cuckoo" "dangerous"] "cf" "Puts a part of a saved erasable filter back";
    CfCompact "cf.compact" 2 ["write" "module"] (1, 1, 1) ["cuckoo"] "cf" "Builds an erasable filter anew from what is in it";

    UmbelCreate "umbel.create" -4 ["write" "denyoom" "module"] (1, 1, 1) ["umbel"] "umbel" "Makes a filter with every option there is";
    UmbelExists "umbel.exists" -3 ["readonly" "module"] (1, 1, 1) ["umbel"] "umbel" "Absent, maybe or unknown, for each item, with the position of the answer";
    UmbelAdd "umbel.add" -3 ["write" "denyoom" "module"] (1, 1, 1) ["umbel"] "umbel" "Adds items and gives the position; a retry with the same session and sequence has no second effect";
    UmbelRemove "umbel.remove" -3 ["write" "module"] (1, 1, 1) ["umbel"] "umbel" "Takes items out, each once, if they were added";
    UmbelVerify "umbel.verify" -3 ["readonly" "module"] (1, 1, 1) ["umbel"] "umbel" "How often items were added, exactly";
    UmbelWait "umbel.wait" -2 ["readonly" "module"] (0, 0, 0) ["umbel"] "umbel" "Waits until a position is reached";
    UmbelMerge "umbel.merge" -3 ["write" "denyoom" "module"] (1, -1, 1) ["umbel"] "umbel" "Adds all of some filters to another";
    UmbelResize "umbel.resize" -2 ["write" "denyoom" "module"] (1, 1, 1) ["umbel"] "umbel" "Gives a filter another capacity or error rate";
    UmbelExport "umbel.export" -2 ["readonly" "module"] (1, 1, 1) ["umbel" "dangerous"] "umbel" "A filter as a file of some format";
    UmbelImport "umbel.import" -4 ["write" "denyoom" "module"] (1, 1, 1) ["umbel" "dangerous"] "umbel" "Makes a filter from a file of some format";
    UmbelStats "umbel.stats" 2 ["readonly" "module"] (1, 1, 1) ["umbel"] "umbel" "Fill, estimated error, generation, bytes and adds a second of a filter";
    UmbelGrowth "umbel.growth" 2 ["readonly" "module"] (1, 1, 1) ["umbel"] "umbel" "How fast a filter fills, when it will be full, and which sizes it had";
    UmbelRoutes "umbel.routes" 2 ["readonly" "fast" "module"] (1, 1, 1) ["umbel"] "umbel" "Which nodes of a cluster have which items of a filter";
    UmbelClear "umbel.clear" 2 ["write" "module"] (1, 1, 1) ["umbel"] "umbel" "Forgets all items of a filter";
    UmbelRename "umbel.rename" -3 ["write" "module"] (1, 2, 1) ["umbel"] "umbel" "Gives a filter another name";
    UmbelList "umbel.list" -1 ["readonly" "module"] (0, 0, 0) ["umbel"] "umbel" "All filters";
    UmbelRebuild "umbel.rebuild" -2 ["write" "module" "container"] (0, 0, 0) ["umbel"] "umbel" "Commands that fill a filter anew while it is used";
    UmbelRebuildStart "umbel.rebuild|start" -3 ["write" "denyoom" "module"] (2, 2, 1) ["umbel"] "umbel" "Begins to fill a filter anew, or goes on with it";
    UmbelRebuildAdd "umbel.rebuild|add" -5 ["write" "denyoom" "module"] (2, 2, 1) ["umbel"] "umbel" "Adds items of the source to what is being filled";
    UmbelRebuildStatus "umbel.rebuild|status" 3 ["readonly" "module"] (2, 2, 1) ["umbel"] "umbel" "How far the filling of a filter is";
    UmbelRebuildFinish "umbel.rebuild|finish" -3 ["write" "module"] (2, 2, 1) ["umbel"] "umbel" "Lets what was filled take the filter's place";
    UmbelRebuildAbort "umbel.rebuild|abort" 3 ["write" "module"] (2, 2, 1) ["umbel"] "umbel" "Gives up filling a filter anew";
    UmbelRebuildHelp "umbel.rebuild|help" 2 ["readonly" "fast" "module"] (0, 0, 0) ["umbel"] "umbel" "How these commands are called";
    UmbelLookup "umbel.lookup" -3 ["readonly" "module"] (1, 1, 1) ["umbel"] "umbel" "Which domains may have a key of a catalog, or its record";
    UmbelHottest "umbel.hottest" -2 ["readonly" "module"] (1, 1, 1) ["umbel"] "umbel" "The keys of a catalog that were asked for most often";
    UmbelHelp "umbel.help" -1 ["readonly" "fast" "module"] (0, 0, 0) ["umbel"] "umbel" "How the commands of Umbel are called";

    UmbelPeer "umbel.peer" -2 ["admin" "noscript" "no_auth" "container"] (0, 0, 0) ["dangerous"] "server" "What nodes of a cluster ask of each other";
    UmbelPeerHello "umbel.peer|hello" 5 ["admin" "noscript" "fast" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Says that a node is there, with the secret of its cluster";
    UmbelPeerSubmit "umbel.peer|submit" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Appends and folds entries, for another node";
    UmbelPeerAsk "umbel.peer|ask" 3 ["admin" "noscript" "fast" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Looks keys up, for another node";
    UmbelPeerVerify "umbel.peer|verify" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "How often keys were added, for another node";
    UmbelPeerReach "umbel.peer|reach" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Folds up to a position, for another node";
    UmbelPeerFind "umbel.peer|find" 3 ["admin" "noscript" "fast" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Looks for the filter that has a name, for another node";
    UmbelPeerCounts "umbel.peer|counts" 3 ["admin" "noscript" "fast" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "What a filter holds here, for another node";
    UmbelPeerLook "umbel.peer|look" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Looks keys up as current as somebody wants, for another node";
    UmbelPeerKeys "umbel.peer|keys" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "The next keys of a part of a filter, for another node";
    UmbelPeerShapes "umbel.peer|shapes" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "What arrays parts of a filter have, for another node";
    UmbelPeerBlocks "umbel.peer|blocks" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Blocks of a part of a filter, for another node";
    UmbelPeerPublish "umbel.peer|publish" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Makes parts of a version of a filter, for another node";
    UmbelPeerChanges "umbel.peer|changes" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "What changed a filter, for another node";
    UmbelPeerPass "umbel.peer|pass" 3 ["admin" "noscript" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Answers a request over HTTP, for another node";
    UmbelPeerNotice "umbel.peer|notice" 3 ["admin" "noscript" "fast" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Tells those who listen here of something, for another node";
    UmbelPeerPing "umbel.peer|ping" 3 ["admin" "noscript" "fast" "no_auth" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Answers another node that asks whether it reaches this one";
    UmbelNode "umbel.node" -2 ["admin" "noscript" "container"] (0, 0, 0) ["dangerous"] "server" "Commands about the nodes of a cluster";
    UmbelNodeList "umbel.node|list" 2 ["admin" "noscript"] (0, 0, 0) ["dangerous"] "server" "All nodes, and what they serve";
    UmbelNodeDigests "umbel.node|digests" 2 ["admin" "noscript"] (0, 0, 0) ["dangerous"] "server" "What each slot that this node hosts has come to";
    UmbelNodeDrain "umbel.node|drain" -2 ["admin" "noscript"] (0, 0, 0) ["dangerous"] "server" "Lets a node give its partitions away";
    UmbelNodeUndrain "umbel.node|undrain" -2 ["admin" "noscript"] (0, 0, 0) ["dangerous"] "server" "Lets a node stay at its next start";

    Del "del" -2 ["write"] (1, -1, 1) ["keyspace"] "generic" "Drops filters";
    Unlink "unlink" -2 ["write" "fast"] (1, -1, 1) ["keyspace"] "generic" "Drops filters";
    Exists "exists" -2 ["readonly" "fast"] (1, -1, 1) ["keyspace"] "generic" "How many of these filters there are";
    Type "type" 2 ["readonly" "fast"] (1, 1, 1) ["keyspace"] "generic" "The type of a filter";
    Keys "keys" 2 ["readonly"] (0, 0, 0) ["keyspace" "dangerous"] "generic" "The names of all filters that match a pattern";
    Scan "scan" -2 ["readonly"] (0, 0, 0) ["keyspace"] "generic" "The names of filters, some at a time";
    Dbsize "dbsize" 1 ["readonly" "fast"] (0, 0, 0) ["keyspace"] "server" "How many filters there are";
    Randomkey "randomkey" 1 ["readonly"] (0, 0, 0) ["keyspace"] "generic" "The name of some filter";
    Rename "rename" 3 ["write"] (1, 2, 1) ["keyspace"] "generic" "Gives a filter another name";
    Renamenx "renamenx" 3 ["write" "fast"] (1, 2, 1) ["keyspace"] "generic" "Gives a filter another name, if it is free";
    Touch "touch" -2 ["readonly" "fast"] (1, -1, 1) ["keyspace"] "generic" "How many of these filters there are";
    Expire "expire" -3 ["write" "fast"] (1, 1, 1) ["keyspace"] "generic" "Lets a filter expire in some seconds";
    Pexpire "pexpire" -3 ["write" "fast"] (1, 1, 1) ["keyspace"] "generic" "Lets a filter expire in some milliseconds";
    Expireat "expireat" -3 ["write" "fast"] (1, 1, 1) ["keyspace"] "generic" "Lets a filter expire at a time in seconds";
    Pexpireat "pexpireat" -3 ["write" "fast"] (1, 1, 1) ["keyspace"] "generic" "Lets a filter expire at a time in milliseconds";
    Ttl "ttl" 2 ["readonly" "fast"] (1, 1, 1) ["keyspace"] "generic" "Seconds until a filter expires";
    Pttl "pttl" 2 ["readonly" "fast"] (1, 1, 1) ["keyspace"] "generic" "Milliseconds until a filter expires";
    Expiretime "expiretime" 2 ["readonly" "fast"] (1, 1, 1) ["keyspace"] "generic" "The time at which a filter expires, in seconds";
    Pexpiretime "pexpiretime" 2 ["readonly" "fast"] (1, 1, 1) ["keyspace"] "generic" "The time at which a filter expires, in milliseconds";
    Persist "persist" 2 ["write" "fast"] (1, 1, 1) ["keyspace"] "generic" "Lets a filter never expire";
    Dump "dump" 2 ["readonly"] (1, 1, 1) ["keyspace"] "generic" "A filter as bytes with a checksum";
    Restore "restore" -4 ["write" "denyoom"] (1, 1, 1) ["keyspace" "dangerous"] "generic" "Makes a filter from what DUMP gave";
    Flushall "flushall" -1 ["write"] (0, 0, 0) ["keyspace" "dangerous"] "server" "Drops all filters";
    Flushdb "flushdb" -1 ["write"] (0, 0, 0) ["keyspace" "dangerous"] "server" "Drops all filters";

    Ping "ping" -1 ["fast"] (0, 0, 0) ["connection"] "connection" "Answers PONG, or what it was given";
    Echo "echo" 2 ["fast" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "Answers what it was given";
    Hello "hello" -1 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) ["connection"] "connection" "Agrees on a version of the protocol, and says who is there";
    Auth "auth" -2 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) ["connection"] "connection" "Says who the client is";
    Select "select" 2 ["loading" "stale" "fast"] (0, 0, 0) ["connection"] "connection" "Chooses the database; there is one, 0";
    Quit "quit" -1 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) ["connection"] "connection" "Ends the connection";
    Reset "reset" 1 ["noscript" "loading" "stale" "fast" "no_auth" "allow_busy"] (0, 0, 0) ["connection"] "connection" "Makes the connection as it was in the beginning";
    Client "client" -2 ["noscript" "container"] (0, 0, 0) ["connection"] "connection" "Commands about connections";
    ClientId "client|id" 2 ["noscript" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "The number of the connection";
    ClientInfo "client|info" 2 ["noscript" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "What is known of the connection";
    ClientList "client|list" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["connection" "dangerous"] "connection" "What is known of all connections";
    ClientKill "client|kill" -3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["connection" "dangerous"] "connection" "Ends connections";
    ClientGetname "client|getname" 2 ["noscript" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "The name of the connection";
    ClientSetname "client|setname" 3 ["noscript" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "Names the connection";
    ClientSetinfo "client|setinfo" 4 ["noscript" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "Says which library the client is";
    ClientNoEvict "client|no-evict" 3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["connection" "dangerous"] "connection" "Accepted; connections are never evicted";
    ClientNoTouch "client|no-touch" 3 ["noscript" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "Accepted; nothing is touched";
    ClientReply "client|reply" 3 ["noscript" "loading" "stale"] (0, 0, 0) ["connection"] "connection" "Whether the client wants replies";
    ClientPause "client|pause" -3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["connection" "dangerous"] "connection" "Lets all connections wait for a while";
    ClientUnpause "client|unpause" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["connection" "dangerous"] "connection" "Lets connections go on";
    ClientHelp "client|help" 2 ["loading" "stale"] (0, 0, 0) ["connection"] "connection" "How CLIENT is called";

    Acl "acl" -2 ["container"] (0, 0, 0) [] "server" "Commands about users";
    AclCat "acl|cat" -2 ["noscript" "loading" "stale"] (0, 0, 0) ["slow"] "server" "All categories, or the commands of one";
    AclDeluser "acl|deluser" -3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Removes users";
    AclDryrun "acl|dryrun" -4 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Whether a user could run a command";
    AclGenpass "acl|genpass" -2 ["noscript" "loading" "stale"] (0, 0, 0) [] "server" "A password made by chance";
    AclGetuser "acl|getuser" 3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "What a user may do";
    AclList "acl|list" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "All users, as rules";
    AclLoad "acl|load" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Reads the users from their file again";
    AclLog "acl|log" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "What was refused";
    AclSave "acl|save" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Writes the users into their file";
    AclSetuser "acl|setuser" -3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Makes or changes a user";
    AclUsers "acl|users" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "The names of all users";
    AclWhoami "acl|whoami" 2 ["noscript" "loading" "stale"] (0, 0, 0) [] "server" "Who the client is";
    AclHelp "acl|help" 2 ["loading" "stale"] (0, 0, 0) [] "server" "How ACL is called";

    Command "command" -1 ["loading" "stale" "container"] (0, 0, 0) ["connection"] "server" "All commands";
    CommandCount "command|count" 2 ["loading" "stale"] (0, 0, 0) ["connection"] "server" "How many commands there are";
    CommandDocs "command|docs" -2 ["loading" "stale"] (0, 0, 0) ["connection"] "server" "What commands are for";
    CommandGetkeys "command|getkeys" -3 ["loading" "stale"] (0, 0, 0) ["connection"] "server" "The keys of a command";
    CommandInfo "command|info" -2 ["loading" "stale"] (0, 0, 0) ["connection"] "server" "What commands take";
    CommandList "command|list" -2 ["loading" "stale"] (0, 0, 0) ["connection"] "server" "The names of all commands";
    CommandHelp "command|help" 2 ["loading" "stale"] (0, 0, 0) ["connection"] "server" "How COMMAND is called";

    Config "config" -2 ["container"] (0, 0, 0) [] "server" "Commands about settings";
    ConfigGet "config|get" -3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Settings that match patterns";
    ConfigSet "config|set" -4 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Changes settings";
    ConfigResetstat "config|resetstat" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Counts from zero again";
    ConfigRewrite "config|rewrite" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Refused: settings are written by people";
    ConfigHelp "config|help" 2 ["loading" "stale"] (0, 0, 0) [] "server" "How CONFIG is called";

    Info "info" -1 ["loading" "stale"] (0, 0, 0) ["dangerous"] "server" "What the server is and does";
    Time "time" 1 ["loading" "stale" "fast"] (0, 0, 0) [] "server" "The time";
    Role "role" 1 ["noscript" "loading" "stale" "fast"] (0, 0, 0) ["admin" "dangerous"] "server" "The part that the server plays";
    Module "module" -2 ["container"] (0, 0, 0) [] "server" "Commands about modules";
    ModuleList "module|list" 2 ["admin" "noscript"] (0, 0, 0) ["dangerous"] "server" "The modules that a client may expect";
    Memory "memory" -2 ["container"] (0, 0, 0) [] "server" "Commands about memory";
    MemoryUsage "memory|usage" -3 ["readonly"] (2, 2, 1) [] "server" "Bytes that a filter takes";
    MemoryStats "memory|stats" 2 ["readonly"] (0, 0, 0) [] "server" "Where memory goes";
    MemoryDoctor "memory|doctor" 2 ["readonly"] (0, 0, 0) [] "server" "Memory in words";
    MemoryHelp "memory|help" 2 ["loading" "stale"] (0, 0, 0) [] "server" "How MEMORY is called";
    Save "save" 1 ["admin" "noscript" "no_multi"] (0, 0, 0) ["dangerous"] "server" "Makes a checkpoint and waits for it";
    Bgsave "bgsave" -1 ["admin" "noscript"] (0, 0, 0) ["dangerous"] "server" "Makes a checkpoint";
    Lastsave "lastsave" 1 ["loading" "stale" "fast"] (0, 0, 0) ["admin" "dangerous"] "server" "When the last checkpoint was made";
    Debug "debug" -2 ["admin" "noscript" "loading" "stale" "container"] (0, 0, 0) ["dangerous"] "server" "Commands for tests";
    DebugSleep "debug|sleep" 3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Lets the connection wait";
    DebugReload "debug|reload" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Leaves all filters on disk and loads them again";
    DebugHelp "debug|help" 2 ["loading" "stale"] (0, 0, 0) [] "server" "How DEBUG is called";
    Multi "multi" 1 ["noscript" "loading" "stale" "fast" "allow_busy"] (0, 0, 0) ["transaction"] "transactions" "Begins to collect commands";
    Exec "exec" 1 ["noscript" "loading" "stale"] (0, 0, 0) ["transaction"] "transactions" "Runs the collected commands";
    Discard "discard" 1 ["noscript" "loading" "stale" "fast" "allow_busy"] (0, 0, 0) ["transaction"] "transactions" "Forgets the collected commands";
    Slowlog "slowlog" -2 ["container"] (0, 0, 0) [] "server" "Commands about slow commands";
    SlowlogGet "slowlog|get" -2 ["admin" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "The newest slow commands";
    SlowlogLen "slowlog|len" 2 ["admin" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "How many slow commands are kept";
    SlowlogReset "slowlog|reset" 2 ["admin" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Forgets slow commands";
    SlowlogHelp "slowlog|help" 2 ["loading" "stale"] (0, 0, 0) [] "server" "How SLOWLOG is called";
    Latency "latency" -2 ["container"] (0, 0, 0) [] "server" "Commands about latency";
    LatencyDoctor "latency|doctor" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Latency in words";
    LatencyHistogram "latency|histogram" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "How long commands took";
    LatencyHistory "latency|history" 3 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "When an event was slow";
    LatencyLatest "latency|latest" 2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "The newest slow events";
    LatencyReset "latency|reset" -2 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Forgets slow events";
    LatencyHelp "latency|help" 2 ["loading" "stale"] (0, 0, 0) [] "server" "How LATENCY is called";
    Shutdown "shutdown" -1 ["admin" "noscript" "loading" "stale" "no_multi" "allow_busy"] (0, 0, 0) ["dangerous"] "server" "Ends the server";
    Monitor "monitor" 1 ["admin" "noscript" "loading" "stale"] (0, 0, 0) ["dangerous"] "server" "Shows every command that is run";
}

impl Id {
    /// What the table says of it.
    #[inline]
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }
}

impl Row {
    /// Whether it has a flag.
    pub fn is(&self, flag: &str) -> bool {
        self.flags.contains(&flag)
    }

    /// Whether it has so many words, its name included.
    pub fn takes(&self, words: usize) -> bool {
        let arity = usize::from(self.arity.unsigned_abs());
        if self.arity < 0 { words >= arity } else { words == arity }
    }

    /// All its categories: its own, and those that follow from its flags.
    pub fn all_categories(&self) -> Vec<&'static str> {
        let mut all = self.categories.to_vec();
        let follow = [("write", "write"), ("readonly", "read"), ("admin", "admin"), ("fast", "fast")];
        all.extend(follow.iter().filter(|(flag, _)| self.is(flag)).map(|(_, category)| *category));
        if self.is("admin") && !all.contains(&"dangerous") {
            all.push("dangerous");
        }
        if !self.is("fast") && !all.contains(&"slow") {
            all.push("slow");
        }
        all
    }

    /// The positions of its keys in a command of so many words.
    pub fn key_positions(&self, words: usize) -> impl Iterator<Item = usize> + Clone + use<> {
        let (first, last, step) = self.keys;
        let last = if last < 0 { words.saturating_sub(last.unsigned_abs().into()) } else { last as usize };
        let first = if first == 0 { usize::MAX } else { first as usize };
        (first..=last.min(words.saturating_sub(1))).step_by(step.max(1) as usize)
    }

    /// Its own name, without the command that it belongs to.
    pub fn own_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, own)| own)
    }

    /// The subcommands, if it is a command of commands.
    pub fn subcommands(&self) -> impl Iterator<Item = &'static Row> + use<> {
        let name = self.name;
        TABLE
            .iter()
            .filter(move |row| row.name.split_once('|').is_some_and(|(container, _)| container == name))
    }
}

/// Commands that are no subcommands.
pub fn commands() -> impl Iterator<Item = &'static Row> {
    TABLE.iter().filter(|row| !row.name.contains('|'))
}

static BY_NAME: LazyLock<HashMap<&'static str, Id>> =
    LazyLock::new(|| TABLE.iter().map(|row| (row.name, row.id)).collect());

static CATEGORIES: LazyLock<Vec<Vec<&'static str>>> =
    LazyLock::new(|| TABLE.iter().map(Row::all_categories).collect());

/// The table as rules of users see it.
#[derive(Clone, Copy, Debug)]
pub struct Rules;

impl crate::acl::Commands for Rules {
    fn len(&self) -> usize {
        TABLE.len()
    }

    fn name(&self, index: usize) -> &str {
        TABLE.get(index).map_or("", |row| row.name)
    }

    fn categories(&self, index: usize) -> &[&str] {
        CATEGORIES.get(index).map_or(&[], Vec::as_slice)
    }
}

/// Longest name in the table.
const NAME_BYTES_MAX: usize = 32;

/// The command of that name, in any case.
pub fn find(name: &[u8]) -> Option<Id> {
    let mut lower = [0; NAME_BYTES_MAX];
    let lower = lower.get_mut(..name.len())?;
    lower.copy_from_slice(name);
    lower.make_ascii_lowercase();
    BY_NAME.get(std::str::from_utf8(lower).ok()?).copied()
}

/// The subcommand of a command.
pub fn find_subcommand(container: &Row, name: &[u8]) -> Option<Id> {
    let name = std::str::from_utf8(name).ok().filter(|name| name.len() < NAME_BYTES_MAX)?;
    find(format!("{}|{name}", container.name).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_order() {
        for (number, row) in TABLE.iter().enumerate() {
            assert_eq!(row.id as usize, number, "{}", row.name);
            assert!(row.name.len() <= NAME_BYTES_MAX && row.name == row.name.to_lowercase());
            assert_eq!(find(row.name.to_uppercase().as_bytes()), Some(row.id));
        }
        assert_eq!(BY_NAME.len(), TABLE.len(), "two rows of one name");
    }

    #[test]
    fn keys_are_where_they_are() {
        let keys = |id: Id, words| id.row().key_positions(words).collect::<Vec<_>>();
        assert_eq!(keys(Id::BfMadd, 9), [1]);
        assert_eq!(keys(Id::Del, 4), [1, 2, 3]);
        assert_eq!(keys(Id::MemoryUsage, 3), [2]);
        assert_eq!(keys(Id::Ping, 2), [0; 0]);
        assert_eq!(keys(Id::Rename, 2), [1]);
    }
}
