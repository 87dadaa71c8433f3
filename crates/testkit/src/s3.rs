//! An S3 server of our own.

use std::path::Path;
use std::sync::Arc;

use hyper::Method;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use s3s::auth::SimpleAuth;
use s3s::service::S3ServiceBuilder;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

pub const KEY: &str = "key";
pub const SECRET: &str = "secret";

/// The S3 protocol over the files of a folder, with one bucket. Its own check of `If-Match` and its write are two: nobody else writes in
/// between.
pub async fn serve(folder: &Path, bucket: &str) -> (String, JoinHandle<()>) {
    let files = std::fs::create_dir_all(folder.join(bucket)).map_err(|error| error.to_string());
    let files = files.and_then(|()| s3s_fs::FileSystem::new(folder).map_err(|error| format!("{error:?}")));
    let mut builder = S3ServiceBuilder::new(files.unwrap_or_else(|error| panic!("a folder for S3: {error}")));
    builder.set_auth(SimpleAuth::from_single(KEY, SECRET));
    let service = builder.build();
    let bound = TcpListener::bind("127.0.0.1:0").await;
    let listener = bound.unwrap_or_else(|error| panic!("a port for S3: {error}"));
    let address = listener.local_addr().unwrap_or_else(|error| panic!("a port for S3: {error}"));
    let one_at_a_time = Arc::new(Mutex::new(()));
    let server = tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            // Head and body of an answer are two writes: without this the second waits 40 ms for the first one's acknowledgement.
            let _ = socket.set_nodelay(true);
            let (service, turn) = (service.clone(), one_at_a_time.clone());
            let answer = service_fn(move |request| {
                let (service, turn) = (service.clone(), turn.clone());
                async move {
                    // Readers are not kept waiting: they see what a rename leaves.
                    let is_write = *hyper::Request::method(&request) == Method::PUT;
                    let _turn = if is_write { Some(turn.lock().await) } else { None };
                    Service::call(&service, request).await
                }
            });
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(socket), answer));
        }
    });
    (format!("http://{address}"), server)
}
