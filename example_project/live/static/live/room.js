// One room: connects again when the connection is lost, later each time.
"use strict";

const topic = document.body.dataset.topic;
const state = document.getElementById("status");
const input = document.getElementById("text");
let socket;
let pause = 500;

function show(author, text) {
  const item = document.createElement("li");
  item.textContent = `${author}: ${text}`;
  document.getElementById("said").append(item);
}

function connect() {
  const scheme = location.protocol === "https:" ? "wss" : "ws";
  socket = new WebSocket(`${scheme}://${location.host}/live/socket/`);
  socket.onmessage = ({ data }) => {
    const message = JSON.parse(data);
    if (message.type === "ready") {
      pause = 500;
      socket.send(JSON.stringify({ type: "subscribe", topic }));
    } else if (message.type === "subscribed") {
      state.textContent = "Connected";
    } else if (message.type === "event") {
      show(message.data.author, message.data.text);
    } else if (message.type === "error") {
      state.textContent = message.error;
    }
  };
  socket.onclose = () => {
    state.textContent = "Connecting again …";
    setTimeout(connect, pause * (0.5 + Math.random() / 2));
    pause = Math.min(2 * pause, 10000);
  };
}

document.getElementById("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (socket.readyState !== WebSocket.OPEN) return;
  socket.send(JSON.stringify({ type: "publish", topic, data: input.value }));
  show("you", input.value);
  input.value = "";
});
connect();
