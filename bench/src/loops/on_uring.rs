//! A loop on io_uring: each connection has one request to receive that stays, the kernel
//! picks buffers from a ring, replies are sent by the call that waits, sockets and the ring itself are registered.
//!
//! The kernel writes into buffers and reads replies behind the compiler's back, which takes unsafe code. All memory that
//! it is told of is never freed: whatever goes wrong, the kernel finds it.
#![allow(unsafe_code)]

use std::alloc::Layout;
use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::types::{BufRingEntry, Fixed};
use io_uring::{IoUring, SubmissionQueue, cqueue, opcode, squeue};

use super::frames::Frames;

/// Buffers of the ring, more than there are connections. The kernel takes one after the other, so they are small, for
/// the sake of caches. Longer pipelines than some 90 requests come in several, and are answered in as many pieces.
const BUFFERS: u16 = 64;
const BUFFER_BYTES: usize = 4096;
const GROUP: u16 = 0;
/// Entries of the ring: a receive and a send for each connection, and some.
const ENTRIES: u32 = 256;
const PAGE_BYTES: usize = 4096;

/// Says of which kind a completion is; the rest is the number of the connection.
const SEND: u64 = 1 << 32;

/// Whether the system lets a process do all that is needed here.
pub(super) fn probe() -> io::Result<()> {
    let ring = ring()?;
    Buffers::register(&ring)?;
    Ok(())
}

/// A ring of one thread, whose completions are worked off when that thread waits for them.
fn ring() -> io::Result<IoUring> {
    IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_submit_all().build(ENTRIES)
}

pub(super) fn serve(streams: &[TcpStream]) -> io::Result<u64> {
    let mut ring = ring()?;
    let mut buffers = Buffers::register(&ring)?;
    let sockets: Vec<RawFd> = streams.iter().map(AsRawFd::as_raw_fd).collect();
    ring.submitter().register_files(&sockets)?;
    let connections = Vec::leak(streams.iter().map(|_| Connection::default()).collect());

    let (mut submitter, mut submissions, mut completions) = ring.split();
    submitter.register_ring_fd()?;
    for index in 0..connections.len() {
        receive(&mut submissions, index)?;
    }
    let mut open = connections.len();
    while open > 0 {
        submissions.sync();
        match submitter.submit_and_wait(1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            submitted => {
                submitted?;
            }
        }
        completions.sync();
        for completion in &mut completions {
            let index = (completion.user_data() & !SEND) as usize;
            let connection = &mut connections[index];
            if completion.user_data() & SEND != 0 {
                let sent = usize::try_from(completion.result())
                    .map_err(|_| io::Error::from_raw_os_error(-completion.result()))?;
                connection.is_sent(sent, &mut submissions, index)?;
                continue;
            }
            match completion.result() {
                0 => {
                    open -= 1;
                    continue;
                }
                bytes @ 1.. => {
                    let picked = cqueue::buffer_select(completion.flags());
                    let picked =
                        picked.ok_or_else(|| io::Error::other("bytes have come without a buffer"))?;
                    let input = buffers.get(picked, bytes as usize);
                    connection.frames.answer(input, &mut connection.replies);
                    buffers.give_back(picked);
                    connection.send(&mut submissions, index)?;
                }
                // All buffers are taken; those of this turn are back now.
                error if error == -libc::ENOBUFS => {}
                error => return Err(io::Error::from_raw_os_error(-error)),
            }
            if !cqueue::more(completion.flags()) {
                receive(&mut submissions, index)?;
            }
        }
        buffers.publish();
    }
    Ok(connections.iter().map(|connection| connection.frames.whole()).sum())
}

#[derive(Default)]
struct Connection {
    frames: Frames,
    replies: Vec<u8>,
    /// What the kernel sends; untouched until it says that it has.
    in_flight: Vec<u8>,
    sent: usize,
}

impl Connection {
    /// Hands replies to the kernel, unless it is busy with those before them.
    fn send(&mut self, submissions: &mut SubmissionQueue<'_>, index: usize) -> io::Result<()> {
        if self.in_flight.is_empty() {
            if self.replies.is_empty() {
                return Ok(());
            }
            std::mem::swap(&mut self.in_flight, &mut self.replies);
            return self.send_rest(submissions, index);
        }
        Ok(())
    }

    fn send_rest(&self, submissions: &mut SubmissionQueue<'_>, index: usize) -> io::Result<()> {
        let rest = &self.in_flight[self.sent..];
        let send = opcode::Send::new(Fixed(index as u32), rest.as_ptr(), rest.len() as u32);
        push(submissions, &send.build().user_data(SEND | index as u64))
    }

    fn is_sent(
        &mut self,
        bytes: usize,
        submissions: &mut SubmissionQueue<'_>,
        index: usize,
    ) -> io::Result<()> {
        self.sent += bytes;
        if self.sent < self.in_flight.len() {
            return self.send_rest(submissions, index);
        }
        self.in_flight.clear();
        self.sent = 0;
        self.send(submissions, index)
    }
}

/// Receives whatever comes on a connection, from now on.
fn receive(submissions: &mut SubmissionQueue<'_>, index: usize) -> io::Result<()> {
    push(submissions, &opcode::RecvMulti::new(Fixed(index as u32), GROUP).build().user_data(index as u64))
}

fn push(submissions: &mut SubmissionQueue<'_>, entry: &squeue::Entry) -> io::Result<()> {
    // SAFETY: an entry names a registered socket, and either the group of buffers or replies that are in flight. Both
    // are never freed, and replies are left alone until the kernel has sent them.
    unsafe { submissions.push(entry) }.map_err(io::Error::other)
}

/// Memory that the kernel picks from, and the ring in which it is told what it may pick.
struct Buffers {
    entries: NonNull<BufRingEntry>,
    memory: NonNull<u8>,
    tail: u16,
}

impl Buffers {
    fn register(ring: &IoUring) -> io::Result<Self> {
        let entries = pages(usize::from(BUFFERS) * size_of::<BufRingEntry>())?.cast();
        let memory = pages(usize::from(BUFFERS) * BUFFER_BYTES)?;
        // SAFETY: there is room for so many entries at a page's start, and it is never freed.
        unsafe {
            let address = entries.as_ptr() as u64;
            ring.submitter().register_buf_ring_with_flags(address, BUFFERS, GROUP, 0)?;
        }
        let mut buffers = Self { entries, memory, tail: 0 };
        (0..BUFFERS).for_each(|number| buffers.give_back(number));
        buffers.publish();
        Ok(buffers)
    }

    /// The first bytes of a buffer that the kernel has filled.
    fn get(&self, number: u16, bytes: usize) -> &[u8] {
        assert!(number < BUFFERS && bytes <= BUFFER_BYTES, "a buffer that the kernel was not given");
        // SAFETY: the range lies within the memory, which was zeroed when it was allocated. The kernel has told of this
        // buffer and leaves it alone until it is given back, which takes `&mut self`.
        unsafe {
            std::slice::from_raw_parts(self.memory.as_ptr().add(usize::from(number) * BUFFER_BYTES), bytes)
        }
    }

    /// Lets the kernel pick a buffer again, from the next `publish` on.
    fn give_back(&mut self, number: u16) {
        assert!(number < BUFFERS, "a buffer that the kernel was not given");
        let slot = usize::from(self.tail % BUFFERS);
        // SAFETY: both offsets are within their memory. The kernel reads entries before the tail only, and this one is
        // behind it: no more buffers are out than there are. Its tail, in the first entry, is not touched by the setters.
        unsafe {
            let address = self.memory.as_ptr().add(usize::from(number) * BUFFER_BYTES) as u64;
            let entry = &mut *self.entries.as_ptr().add(slot);
            entry.set_addr(address);
            entry.set_len(BUFFER_BYTES as u32);
            entry.set_bid(number);
        }
        self.tail = self.tail.wrapping_add(1);
    }

    /// Tells the kernel of the buffers that were given back.
    fn publish(&self) {
        // SAFETY: the tail is an aligned number in the first entry, which only this thread writes and never as anything
        // else.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(self.entries.as_ptr()).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Zeroed memory of whole pages, which is never freed.
fn pages(bytes: usize) -> io::Result<NonNull<u8>> {
    let layout = Layout::from_size_align(bytes.next_multiple_of(PAGE_BYTES), PAGE_BYTES);
    let layout = layout.map_err(io::Error::other)?;
    // SAFETY: the size is not zero: there are buffers.
    let memory = unsafe { std::alloc::alloc_zeroed(layout) };
    NonNull::new(memory).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
