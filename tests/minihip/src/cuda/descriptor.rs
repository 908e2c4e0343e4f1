//! File descriptors of memory. Those of HIP's runtime stand for a file each, by which tools tell what was exported from what is
//! imported; those of NVIDIA's driver all stand for its device.
//!
//! So a program gets a socket with a message in it: the driver's descriptor. It can be copied, sent to other processes and
//! closed as any other, and the driver's lives as long as it. Who imports it looks at the message and leaves it there.

use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Room for the head of a message and one descriptor, aligned as heads are.
type Room = [u64; 8];

/// What is sent and received: one byte, and `room` beside it.
fn with_message<R>(room: &mut Room, body: impl FnOnce(&mut libc::msghdr) -> R) -> R {
    let mut byte = 0_u8;
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: the struct is plain numbers and addresses, for which zeros are values.
    let mut message: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = room.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Room>();
    body(&mut message)
}

fn pair() -> Option<[OwnedFd; 2]> {
    let mut pair = [-1; 2];
    // SAFETY: writes two descriptors to the array.
    let made = unsafe { libc::socketpair(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr()) };
    // SAFETY: both were just made and belong to nobody else.
    (made == 0).then(|| pair.map(|end| unsafe { OwnedFd::from_raw_fd(end) }))
}

/// A descriptor of a file of its own for the driver's, which is taken over; the driver's itself where the system gives no socket.
pub(super) fn give_out(of_driver: i32) -> i32 {
    // SAFETY: the length of a control message with one descriptor is a number.
    let len_bytes = unsafe { libc::CMSG_SPACE(size_of::<i32>() as u32) } as usize;
    let sent = pair().filter(|[from, _]| {
        let mut room = Room::default();
        with_message(&mut room, |message| {
            message.msg_controllen = len_bytes;
            // SAFETY: the room is larger than a head and one descriptor, and aligned for them.
            unsafe {
                let head = libc::CMSG_FIRSTHDR(message);
                (*head).cmsg_level = libc::SOL_SOCKET;
                (*head).cmsg_type = libc::SCM_RIGHTS;
                (*head).cmsg_len = libc::CMSG_LEN(size_of::<i32>() as u32) as usize;
                libc::CMSG_DATA(head).cast::<i32>().write_unaligned(of_driver);
            }
            // SAFETY: the message describes live memory of this frame and its caller's.
            unsafe { libc::sendmsg(from.as_raw_fd(), message, libc::MSG_NOSIGNAL) == 1 }
        })
    });
    let Some([_, to]) = sent else { return of_driver };
    // SAFETY: the driver gave this descriptor out for the program, which gets the socket in its place.
    drop(unsafe { OwnedFd::from_raw_fd(of_driver) });
    std::os::fd::IntoRawFd::into_raw_fd(to)
}

/// The driver's descriptor that a program's stands for; `None` where it is none of [`give_out`]'s.
pub(super) fn of_driver(given: i32) -> Option<OwnedFd> {
    let mut room = Room::default();
    with_message(&mut room, |message| {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
        // SAFETY: writes only to the byte and the room that the message describes.
        if unsafe { libc::recvmsg(given, message, flags) } != 1 {
            return None;
        }
        // SAFETY: the kernel filled the room as far as it now says.
        let head = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
        // SAFETY: as in `give_out`.
        let expected = unsafe { libc::CMSG_LEN(size_of::<i32>() as u32) } as usize;
        let is_ours = head.cmsg_level == libc::SOL_SOCKET && head.cmsg_type == libc::SCM_RIGHTS;
        if !is_ours || head.cmsg_len != expected {
            return None;
        }
        // SAFETY: the message holds one descriptor, which the kernel made for this process and nobody else knows of.
        Some(unsafe { OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<i32>().read_unaligned()) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::IntoRawFd;

    fn file_of(descriptor: i32) -> (u64, u64) {
        // SAFETY: the struct is plain numbers.
        let mut found: libc::stat = unsafe { MaybeUninit::zeroed().assume_init() };
        // SAFETY: writes to the struct.
        assert_eq!(unsafe { libc::fstat(descriptor, &raw mut found) }, 0);
        (found.st_dev, found.st_ino)
    }

    #[test]
    fn each_stands_for_a_file_of_its_own_and_leads_to_the_drivers() {
        let device = || File::open("/dev/null").expect("there").into_raw_fd();
        let given: Vec<i32> = (0..2).map(|_| give_out(device())).collect();
        assert_ne!(file_of(given[0]), file_of(given[1]));
        for descriptor in &given {
            for _ in 0..2 {
                let found = of_driver(*descriptor).expect("leads to the driver's");
                assert_eq!(file_of(found.as_raw_fd()), file_of(File::open("/dev/null").expect("there").as_raw_fd()));
            }
        }
        // SAFETY: made above, used by nobody else any more.
        given.into_iter().for_each(|descriptor| drop(unsafe { OwnedFd::from_raw_fd(descriptor) }));
    }

    #[test]
    fn the_drivers_is_closed_with_the_last_copy() {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let given = give_out(writer.into_raw_fd());
        // SAFETY: made above, and owned here from now on.
        let given = unsafe { OwnedFd::from_raw_fd(given) };
        let copy = given.try_clone().expect("a copy");
        drop(given);
        File::from(of_driver(copy.as_raw_fd()).expect("leads to the driver's")).write_all(b"text").expect("writable");
        drop(copy);
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("ends with the last copy");
        assert_eq!(text, "text");
    }

    #[test]
    fn what_is_no_such_descriptor_is_told() {
        assert!(of_driver(-1).is_none());
        assert!(of_driver(File::open("/dev/null").expect("there").as_raw_fd()).is_none());
        let [one, _other] = pair().expect("sockets");
        assert!(of_driver(one.as_raw_fd()).is_none(), "an empty socket");
    }
}
