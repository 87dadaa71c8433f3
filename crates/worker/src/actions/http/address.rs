//! Which addresses belong to the public internet. Everything else may be a neighbour that trusts us: a cloud's
//! metadata service, a database, a router.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Why an address is not called; nothing for a public one.
pub fn refusal(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => refusal_v4(address),
        IpAddr::V6(address) => refusal_v6(address),
    }
}

/// First address, length of the prefix, what it is (IANA's special-purpose registry).
const V4: [([u8; 4], u32, &str); 16] = [
    ([0, 0, 0, 0], 8, "unspecified"),
    ([10, 0, 0, 0], 8, "private"),
    ([100, 64, 0, 0], 10, "private to a provider"),
    ([127, 0, 0, 0], 8, "this machine's own"),
    ([169, 254, 0, 0], 16, "link-local, where clouds keep their metadata"),
    ([172, 16, 0, 0], 12, "private"),
    ([192, 0, 0, 0], 24, "reserved"),
    ([192, 0, 2, 0], 24, "for documentation"),
    ([192, 88, 99, 0], 24, "reserved"),
    ([192, 168, 0, 0], 16, "private"),
    ([198, 18, 0, 0], 15, "for benchmarks"),
    ([198, 51, 100, 0], 24, "for documentation"),
    ([203, 0, 113, 0], 24, "for documentation"),
    ([224, 0, 0, 0], 4, "multicast"),
    ([240, 0, 0, 0], 4, "reserved"),
    ([168, 63, 129, 16], 32, "a cloud's metadata service"),
];

fn refusal_v4(address: Ipv4Addr) -> Option<&'static str> {
    let within = |(first, length, _): &&([u8; 4], u32, &str)| {
        let rest = 32 - length;
        u32::from(address) >> rest == u32::from(Ipv4Addr::from(*first)) >> rest
    };
    V4.iter().find(within).map(|(_, _, why)| *why)
}

fn refusal_v6(address: Ipv6Addr) -> Option<&'static str> {
    let parts = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        refusal_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => Some("unspecified"),
        [0, 0, 0, 0, 0, 0, 0, 1] => Some("this machine's own"),
        // Means an IPv4 address: mapped, translated (NAT64), tunnelled (6to4).
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        [0x64, 0xff9b, ..] => Some("translated to a private network"),
        [0xfe80..=0xfebf, ..] => Some("link-local"),
        [0xfc00..=0xfdff, ..] => Some("private"),
        [0xff00..=0xffff, ..] => Some("multicast"),
        [0x2001, 0x0db8, ..] | [0x3fff, 0..=0x0fff, ..] => Some("for documentation"),
        [0x2001, 0..=0x01ff, ..] => Some("reserved"),
        [0x2000..=0x3fff, ..] => None,
        _ => Some("reserved"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rustfmt::skip]
    const REFUSED: &[&str] = &[
        "0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.127.255.255", "127.0.0.1",
        "127.255.255.254", "169.254.169.254", "169.254.0.1", "172.16.0.1", "172.31.255.255", "192.0.0.1",
        "192.0.2.1", "192.88.99.1", "192.168.0.1", "192.168.255.255", "198.18.0.1", "198.19.255.255",
        "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255",
        "168.63.129.16", "::", "::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
        "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::1",
        "2002:c0a8:101::", "fe80::1", "febf::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1",
        "2001::1", "3fff::1", "4000::1", "fec0::1", "100::1", "::ffff:0:127.0.0.1",
    ];

    #[rustfmt::skip]
    const PUBLIC: &[&str] = &[
        "1.1.1.1", "9.255.255.255", "11.0.0.0", "93.184.215.14", "100.63.255.255", "100.128.0.0",
        "126.255.255.255", "128.0.0.1", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.1",
        "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0", "223.255.255.255",
        "168.63.129.15", "2606:4700:4700::1111", "2a00:1450:4001:800::200e", "::ffff:1.1.1.1",
        "64:ff9b::101:101", "2002:101:101::1",
    ];

    #[test]
    fn only_public_addresses_are_called() {
        let refused = |text: &str| refusal(text.parse().expect(text));
        for text in REFUSED {
            assert!(refused(text).is_some(), "{text} would be called");
        }
        for text in PUBLIC {
            assert_eq!(refused(text), None, "{text}");
        }
    }
}
