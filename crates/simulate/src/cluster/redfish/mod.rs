//! The iDRACs of all hosts behind one server: `http://ADDRESS/idrac/HOST/redfish/v1/…`, and the catalogue at
//! `/catalogue.json`.

mod http;
mod jobs;
mod routes;
mod systems;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use http::{Answer, Asked};

use super::world::{Trouble, World};

/// A server that is listening.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    world: World,
}

impl Server {
    pub fn bind(world: &World, listen: SocketAddr) -> io::Result<Server> {
        Ok(Server { listener: TcpListener::bind(listen)?, world: world.clone() })
    }

    /// `http://127.0.0.1:12345`
    pub fn url(&self) -> io::Result<String> {
        Ok(format!("http://{}", self.listener.local_addr()?))
    }

    /// One thread for each connection, for as long as the process lives.
    pub fn run(self) -> io::Result<()> {
        for stream in self.listener.incoming() {
            let (stream, world) = (stream?, self.world.clone());
            // A client that is gone is nobody's trouble.
            thread::spawn(move || {
                let _ = answer(&world, &stream);
            });
        }
        Ok(())
    }
}

fn answer(world: &World, stream: &TcpStream) -> io::Result<()> {
    let asked = match Asked::read(stream)? {
        Ok(asked) => asked,
        Err(problem) => return Answer::error(400, &problem).write(stream),
    };
    match routes::route(world, &asked) {
        Ok(answer) => answer.write(stream),
        Err(Trouble::Refused { status, message }) => Answer::error(status, &message).write(stream),
        Err(Trouble::Broken(message)) => Answer::error(500, &message).write(stream),
        // As a connection that breaks before the answer.
        Err(Trouble::Lost) => stream.shutdown(std::net::Shutdown::Both),
    }
}
