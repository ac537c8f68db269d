// Browsers start no worker from a file; the site's search is one. From a file it runs in a hidden frame instead.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super()
      this.onmessage = this.onerror = this.onmessageerror = null
      this.waiting = []
      this.frame = document.createElement("iframe")
      this.frame.hidden = true
      document.body.append(this.frame)
      const inside = this.frame.contentWindow
      inside.postMessage = (said) => {
        const data = structuredClone(said)
        setTimeout(() => this.onmessage?.(new MessageEvent("message", { data })))
      }
      const script = inside.document.createElement("script")
      script.src = url
      script.onload = () => {
        this.loaded = true
        for (const data of this.waiting) this.deliver(data)
      }
      script.onerror = () => this.onerror?.(new ErrorEvent("error"))
      inside.document.head.append(script)
    }
    // A worker gets copies: it works on them while the page goes on with its own.
    postMessage(said) {
      const data = structuredClone(said)
      if (this.loaded) this.deliver(data)
      else this.waiting.push(data)
    }
    deliver(data) {
      const inside = this.frame.contentWindow
      inside?.dispatchEvent(new inside.MessageEvent("message", { data }))
    }
    terminate() {
      this.frame.remove()
    }
  }
}
