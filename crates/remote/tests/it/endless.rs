//! A server that is none of ours.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use waypost_remote::RemoteStore;
use waypost_store::Store;

/// An answer without an end is not read without an end.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_has_an_end_or_is_left() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let chunk = vec![b' '; 1024 * 1024];
        while let Ok((mut socket, _)) = listener.accept().await {
            let _ = socket.read(&mut [0; 4096]).await;
            let _ = socket.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n").await;
            while socket.write_all(&chunk).await.is_ok() {}
        }
    });
    let asked = async { RemoteStore::open(&url, None).await?.now().await };
    let refused = asked.await.unwrap_err().to_string();
    assert!(refused.contains("sent more than 64 MiB for one answer"), "{refused}");
    server.abort();
}
